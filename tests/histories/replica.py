"""One replica in a history: what it claims, and what becomes of that."""

import random
from collections import Counter
from dataclasses import dataclass, field

from psycopg import errors

from relay.database import CONFLICTS
from relay.model import Destination, Job, Settlement
from relay.rows import Range
from relay.store import Store

# The broken variant meets one more: its old snapshot cannot lock what has changed since.
LOST_RACES = (*CONFLICTS, errors.SerializationFailure)


@dataclass
class Record:
    """What happened in a history, move by move, and what should not have.

    `lapsed` are the (id, claims) of the leases that lapsed.
    """

    moves: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    lapsed: set[tuple[int, int]] = field(default_factory=set)
    tally: Counter[str] = field(default_factory=Counter)


class Replica:
    """Claims on one connection and settles on another, as the relay's two loops do. `held` is what it runs."""

    def __init__(
        self, number: int, claims: Store, settles: Store, policy: Destination, record: Record, rng: random.Random
    ) -> None:
        self.number = number
        self.held: list[Job] = []
        self._claims = claims
        self._settles = settles
        self._policy = policy
        self._record = record
        self._rng = rng

    async def claim(self, free: int, width: int) -> bool:
        """One claim; whether it brought anything."""
        ranges = [
            Range(self._policy.name, priority, free, width, retries=retries)
            for priority in (0, 1, 2, 3)
            for retries in (False, True)
        ]
        jobs = (await self._claims.claim(ranges, payload_bytes=1 << 30)).jobs
        self.held += jobs
        self._record.tally["claims"] += 1
        self._record.moves.append(f"{self.number} has claimed {[job.id for job in jobs]}")
        return bool(jobs)

    def outcomes(self) -> list[Settlement]:
        """Takes some of what it runs, with what becomes of each."""
        batch = self._rng.sample(self.held, self._rng.randint(1, len(self.held)))
        self.held = [job for job in self.held if job not in batch]
        return [self._outcome(job) for job in batch]

    def _outcome(self, job: Job) -> Settlement:
        chance, chain = self._rng.random(), self._rng.random() < 0.5
        if chance < 0.14:
            return Settlement(job, "pending")
        if chance < 0.22:
            return Settlement(job, "pending", charged=False)
        if chance < 0.30:
            blocks = self._policy.on_dead == "block"
            return Settlement(job, "dead", holds_lane=blocks, chain=chain and not blocks)
        return Settlement(job, "done", chain=chain)

    async def settle(self, outcomes: list[Settlement]) -> None:
        """One settle. What lost a race is run on, and settled another time."""
        try:
            settled = await self._settles.settle(outcomes)
        except LOST_RACES:
            self.held += [s.job for s in outcomes]
            raise
        self.held += settled.started
        record = self._record
        record.tally["settles"] += 1
        record.tally["chained"] += len(settled.started)
        record.moves.append(
            f"{self.number} has settled {sorted(settled.ids)}, started {[job.id for job in settled.started]}"
        )
        for job in (s.job for s in outcomes if s.job.id not in settled.ids):
            record.tally["late results"] += 1
            if (job.id, job.claims) not in record.lapsed:
                record.faults.append(f"the result of job {job.id} was refused, and its lease had not lapsed")

    async def finish(self) -> None:
        """Delivers what it runs."""
        while self.held:
            held, self.held = self.held, []
            await self.settle([Settlement(job, "done") for job in held])
