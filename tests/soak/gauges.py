"""What must not grow: a replica's memory, descriptors and connections, and the size of its tables and indexes."""

import os
import statistics
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from psycopg import AsyncConnection

_DATABASE = b"""
SELECT (SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE %s),
       pg_table_size('outbox.job') / 1024, pg_indexes_size('outbox.job') / 1024,
       pg_total_relation_size('outbox.attempt') / 1024
"""
# By how much a line through the samples may rise over the run, as a share of their mean, and in the gauge's unit:
# the larger of the two. A page more, or a vacuum that came late, is no trend.
_SHARE = 0.05
_SLACK = {"rss_kib": 2048, "descriptors": 2, "connections": 1, "job_kib": 512, "indexes_kib": 512, "attempt_kib": 512}

# What a replica may have open however short the run: its pool and its listener; and these, a socket for each slot of
# two destinations, as many that are closing, and what any process has.
_MOST = {"connections": 4 + 2, "descriptors": 4 + 2 + 2 * (2 * 16) + 16}


@dataclass(frozen=True)
class Gauges:
    """One reading; the sizes are KiB."""

    rss_kib: int
    descriptors: int
    connections: int
    job_kib: int
    indexes_kib: int
    attempt_kib: int


@dataclass(frozen=True)
class Trend:
    """A line through one gauge's readings: their mean, their most, and the rise in an hour and in the run."""

    name: str
    mean: float
    most: float
    per_hour: float
    in_run: float

    @property
    def flat(self) -> bool:
        """Whether it does not rise by more than noise; what falls does not grow."""
        return self.in_run <= max(_SLACK[self.name], _SHARE * self.mean)

    @property
    def bounded(self) -> bool:
        """Whether it never was more than a replica may have."""
        return self.most <= _MOST.get(self.name, self.most)

    def __str__(self) -> str:
        """For people."""
        return f"{self.name:12} mean {self.mean:10.1f}  {self.in_run:+8.1f} in the run  {self.per_hour:+10.1f} an hour"


async def read(connection: AsyncConnection, pid: int, replica: str) -> Gauges:
    """The gauges of the replica with this process id and name, and of the database's tables."""
    row = await (await connection.execute(_DATABASE, (f"relay {replica}-%",))).fetchone()
    assert row is not None
    return Gauges(_rss_kib(pid), len(os.listdir(f"/proc/{pid}/fd")), *row)  # noqa: PTH208 - the count is all


def _rss_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def trends(readings: Sequence[tuple[float, Gauges]]) -> list[Trend]:
    """The trend of each gauge over readings, each with its time (s)."""
    times_s = [at_s for at_s, _ in readings]
    found = []
    columns = zip(*(astuple(gauges) for _, gauges in readings), strict=True)
    for each, values in zip(fields(Gauges), columns, strict=True):
        slope = statistics.linear_regression(times_s, values).slope
        mean, in_run = statistics.fmean(values), (times_s[-1] - times_s[0]) * slope
        found.append(Trend(each.name, mean, max(values), 3600 * slope, in_run))
    return found
