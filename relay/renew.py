"""Keeps the leases of everything this replica has claimed, and knows how long each still lasts."""

import logging
import time
from collections.abc import Iterable

from relay.model import Job
from relay.store import Store
from relay.telemetry import event

_BATCH = 1000


class Renewer:
    """The leases held here, each by (job id, claims).

    A lease is counted from before its statement was sent, so this replica believes in it for a little less
    time than the database does.
    """

    def __init__(self, store: Store, lease_s: float) -> None:
        self._store = store
        self._lease_s = lease_s
        self._ends_s: dict[tuple[int, int], float] = {}
        #: Leases found to be somebody else's, since the start.
        self.lost = 0

    def hold(self, jobs: Iterable[Job], since_s: float) -> None:
        """Jobs leased by a statement that was sent at `since_s` (monotonic)."""
        for job in jobs:
            self._ends_s[job.id, job.claims] = since_s + self._lease_s

    def drop(self, jobs: Iterable[Job]) -> None:
        """Jobs that are settled, or lost."""
        for job in jobs:
            self._ends_s.pop((job.id, job.claims), None)

    def remaining_s(self, job: Job) -> float:
        """For how many seconds the job is surely ours; negative when it is not."""
        return self._ends_s.get((job.id, job.claims), 0.0) - time.monotonic()

    async def step(self) -> float:
        """Renews every lease; seconds until the next time."""
        held = sorted(self._ends_s)
        for start in range(0, len(held), _BATCH):
            await self._renew(held[start : start + _BATCH])
        return self._lease_s / 3

    async def _renew(self, held: list[tuple[int, int]]) -> None:
        since_s = time.monotonic()
        renewed, lost = await self._store.renew([id_ for id_, _ in held], [claims for _, claims in held])
        for token in held:
            # What was settled meanwhile is no longer held, and neither renewed nor lost.
            if token not in self._ends_s:
                continue
            if token[0] in renewed:
                self._ends_s[token] = since_s + self._lease_s
            elif token[0] in lost:
                del self._ends_s[token]
                self.lost += 1
                event(logging.WARNING, "lease_lost", job=token[0], claims=token[1], noticed_by="renew")
