"""Keeps the leases of everything this replica has claimed, and knows how long each still lasts."""

import logging
import time
from collections.abc import Iterable

from relay.model import Job
from relay.store import Store
from relay.telemetry import event

_BATCH = 1000


class Renewer:
    """The leases held here, one for each job: a newer claim of it has ended the older one.

    A lease is counted from before its statement was sent, so this replica believes in it for a little less
    time than the database does.
    """

    def __init__(self, store: Store, lease_s: float) -> None:
        self._store = store
        self._lease_s = lease_s
        # By job: its claims, and when the lease ends.
        self._leases: dict[int, tuple[int, float]] = {}
        #: Leases found to be somebody else's, since the start.
        self.lost = 0

    def hold(self, jobs: Iterable[Job], since_s: float) -> None:
        """Jobs leased by a statement that was sent at `since_s` (monotonic)."""
        for job in jobs:
            self._leases[job.id] = job.claims, since_s + self._lease_s

    def drop(self, jobs: Iterable[Job]) -> None:
        """Jobs that are settled, or lost."""
        for job in jobs:
            if self._holds(job.id, job.claims):
                del self._leases[job.id]

    def remaining_s(self, job: Job) -> float:
        """For how many seconds the job is surely ours; negative when it is not."""
        ends_s = self._leases[job.id][1] if self._holds(job.id, job.claims) else 0.0
        return ends_s - time.monotonic()

    async def step(self) -> float:
        """Renews every lease; seconds until the next time."""
        held = sorted((id_, claims) for id_, (claims, _) in self._leases.items())
        for start in range(0, len(held), _BATCH):
            await self._renew(held[start : start + _BATCH])
        return self._lease_s / 3

    async def _renew(self, held: list[tuple[int, int]]) -> None:
        since_s = time.monotonic()
        renewed, lost = await self._store.renew([id_ for id_, _ in held], [claims for _, claims in held])
        for id_, claims in held:
            # What was settled or claimed anew meanwhile is no longer held so, and neither renewed nor lost.
            if not self._holds(id_, claims):
                continue
            if id_ in renewed:
                self._leases[id_] = claims, since_s + self._lease_s
            elif id_ in lost:
                del self._leases[id_]
                self.lost += 1
                event(logging.WARNING, "lease_lost", job=id_, claims=claims, noticed_by="renew")

    def _holds(self, id_: int, claims: int) -> bool:
        lease = self._leases.get(id_)
        return lease is not None and lease[0] == claims
