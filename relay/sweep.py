"""What any replica may do for all of them, in bounded steps: take back lapsed leases, heal lanes."""

import logging
import random
import time
from collections.abc import Callable, Sequence

from relay.database import CONFLICTS
from relay.model import Destination
from relay.rows import Reclaimed
from relay.rules.rest import Rest
from relay.store import Store
from relay.telemetry import event

_RECLAIMED_AT_ONCE = 200
_LANES_AT_ONCE = 1000


class Sweeper:
    """Each step returns the seconds until its next; jitter keeps replicas from sweeping in step."""

    def __init__(
        self,
        store: Store,
        destinations: Sequence[Destination],
        *,
        sweep_s: float,
        batch: int,
        ring: Callable[[str], None],
        on_reclaimed: Callable[[Sequence[Reclaimed]], None],
        rng: random.Random,
    ) -> None:
        self._store = store
        self._ring = ring
        self._on_reclaimed = on_reclaimed
        self._rng = rng
        #: Stranded lanes found and healed, since the start; see `heal`.
        self.healed = 0
        self._healed_up_to = ("", "")
        self._rest = Rest()
        self.configure(destinations, sweep_s=sweep_s, batch=batch)

    def configure(self, destinations: Sequence[Destination], *, sweep_s: float, batch: int) -> None:
        """Sweeps for these, at this pace, from the next step on."""
        self._destinations = destinations
        self._skipping = [d.name for d in destinations if d.on_dead == "skip"]
        self._sweep_s = sweep_s
        self._batch = batch

    async def reclaim(self) -> float:
        """Takes back jobs whose lease has lapsed."""
        began_s = time.monotonic()
        reclaimed = await self._take_back()
        self._on_reclaimed(reclaimed)
        for job in reclaimed:
            event(
                logging.WARNING,
                "job_reclaimed",
                job=job.id,
                destination=job.destination,
                status=job.status,
                locked_by=job.locked_by,
            )
            self._ring(job.destination)
        if len(reclaimed) >= _RECLAIMED_AT_ONCE:
            return 0.0
        return self._soon(max(self._sweep_s, self._rest.after(time.monotonic() - began_s)))

    async def heal(self) -> float:
        """Goes on with lanes that nobody would: stranded ones, and those whose policy has become `skip`."""
        stranded, self._healed_up_to = await self._store.heal(self._healed_up_to, limit=_LANES_AT_ONCE)
        self.healed += len(stranded)
        for destination, entity_key in stranded:
            # The protocol leaves nothing here. If it happens, it is a bug worth a report.
            event(logging.ERROR, "lane_healed", destination=destination, entity_key=entity_key)
            self._ring(destination)
        standing = await self._store.release_standing_lanes(self._skipping, limit=self._batch) if self._skipping else 0
        if standing:
            event(logging.INFO, "standing_lanes_released", lanes=standing)
        return self._soon(1.0 if standing == self._batch or self._healed_up_to != ("", "") else 2 * self._sweep_s)

    async def _take_back(self) -> list[Reclaimed]:
        try:
            return await self._store.reclaim(self._destinations, limit=_RECLAIMED_AT_ONCE)
        except CONFLICTS:
            # Somebody holds the next job of a lane, for which a reclaim waits: no other destination is to wait too.
            reclaimed = []
        for destination in self._destinations:
            try:
                reclaimed += await self._store.reclaim([destination], limit=_RECLAIMED_AT_ONCE)
            except CONFLICTS as conflict:
                event(logging.INFO, "conflict", loop="reclaim", why=str(conflict).partition("\n")[0])
        return reclaimed

    def _soon(self, pause_s: float) -> float:
        return pause_s * self._rng.uniform(0.8, 1.2)
