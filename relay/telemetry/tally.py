"""What a replica counts as it goes, in plain numbers.

A call of an OpenTelemetry instrument costs some 6 µs, and a delivery has no such time to spare. These cost a tenth of
it, and whoever collects (`relay.telemetry.metrics`) reads them.
"""

import time
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from relay.model import ErrorClass, Job, Settlement
from relay.rows import Reclaimed, Settled
from relay.rules.request import valid_traceparent

_ATTEMPT_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0)
_LATENCY_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0, 86_400.0)
_STATEMENT_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
_BATCH = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0)


class Gauge(NamedTuple):
    """One value of a gauge that costs a query; `destination` and `reason` are empty where it has none."""

    name: str
    destination: str
    reason: str
    value: float


class Buckets:
    """How many values lay above one bound and not above the next, and their sum, since the start."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Counts one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


@dataclass(slots=True)
class Counts:
    """What happened to the jobs of one destination, here and since the start."""

    claimed: int = 0
    delivered: int = 0
    retried: int = 0
    dead: int = 0
    reclaimed: int = 0
    fenced: int = 0
    malformed: int = 0
    failed: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ErrorClass, 0))
    attempt_s: Buckets = field(default_factory=lambda: Buckets(_ATTEMPT_S))
    latency_s: Buckets = field(default_factory=lambda: Buckets(_LATENCY_S))


class Tally:
    """The counts of one replica. Only its event loop writes them; whoever reads them may be another thread."""

    def __init__(self, destinations: Iterable[str]) -> None:
        self.of: dict[str, Counts] = {}
        self.configure(destinations)
        self.claim_s = Buckets(_STATEMENT_S)
        self.claim_jobs = Buckets(_BATCH)
        self.settle_s = Buckets(_STATEMENT_S)
        self.settle_jobs = Buckets(_BATCH)

    def configure(self, destinations: Iterable[str]) -> None:
        """Counts for these too from now on. What was counted stays: a job of a removed one may still be in flight."""
        # Another thread may be reading the old one.
        self.of = {name: self.of.get(name) or Counts() for name in dict.fromkeys([*self.of, *destinations])}

    def claim(self, jobs: Sequence[Job], sent_s: float) -> None:
        """A claim that was sent at `sent_s` (monotonic) has brought these jobs."""
        self.claim_s.add(time.monotonic() - sent_s)
        self.claim_jobs.add(len(jobs))
        self.started(jobs)

    def started(self, jobs: Iterable[Job]) -> None:
        """Jobs that are under a lease of ours from now on."""
        for job in jobs:
            counts = self.of[job.destination]
            counts.claimed += 1
            if job.traceparent is not None and not job.is_retry and not valid_traceparent(job.traceparent):
                counts.malformed += 1

    def ended(self, settlement: Settlement) -> None:
        """An attempt has ended, or a job is given back unsent."""
        if settlement.duration_s is None:
            return
        counts = self.of[settlement.job.destination]
        counts.attempt_s.add(settlement.duration_s)
        if settlement.status == "done":
            counts.latency_s.add(time.monotonic() - settlement.job.due_s)

    def settle(self, batch: Sequence[Settlement], settled: Settled, sent_s: float) -> None:
        """A settle that was sent at `sent_s` (monotonic) has written what was still ours of this batch."""
        self.settle_s.add(time.monotonic() - sent_s)
        self.settle_jobs.add(len(batch))
        for settlement in batch:
            job = settlement.job
            counts = self.of[job.destination]
            if (job.id, job.claims) not in settled.tokens:
                counts.fenced += 1
                continue
            if settlement.status == "done":
                counts.delivered += 1
            elif settlement.failure is not None:
                counts.failed[settlement.failure.error_class] += 1
                if settlement.status == "dead":
                    counts.dead += 1
                elif settlement.charged:
                    counts.retried += 1
        self.started(settled.started)

    def reclaimed(self, jobs: Iterable[Reclaimed]) -> None:
        """Jobs taken back from a replica whose lease lapsed."""
        for job in jobs:
            counts = self.of[job.destination]
            counts.reclaimed += 1
            counts.failed[ErrorClass.LEASE_EXPIRED] += 1
            counts.dead += job.status == "dead"
