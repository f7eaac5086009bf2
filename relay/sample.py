"""The gauges that cost a query: taken once an interval by whichever replica is first, and read by all."""

import random
import time
from collections.abc import Sequence

from psycopg.types.json import Jsonb

from relay.admin import DestinationStatus, fair
from relay.database import Database, Transaction
from relay.migration import Comparison, judge, migrations
from relay.rows import Row
from relay.telemetry.tally import Gauge

# Counts of jobs of one destination stop at the first, or sooner where there are so many destinations that they would
# come to more than the second together, but not below the third.
CAP = 5_000
CAP_OF_ALL = 40_000
CAP_AT_LEAST = 100
# Those of jobs behind one lane stop at the first of these, and lanes are looked at up to the second, all destinations
# together.
BEHIND = 100
LANES = 500
REASONS = ("backoff", "dead", "paused", "scheduled")


class Sampler:
    """Each step reads the sample, and takes one first when the last is `every_s` old and nobody else is at it.

    So the database does the work once an interval, however many replicas there are and whoever reads their metrics.
    """

    def __init__(self, database: Database, *, locked_by: str, every_s: float, rng: random.Random) -> None:
        self._database = database
        self._locked_by = locked_by
        #: How old the latest sample may become, in seconds.
        self.every_s = every_s
        self._rng = rng
        self._wanted = migrations()
        self._taken_s = time.monotonic()
        #: The latest sample; empty before the first.
        self.gauges: list[Gauge] = []
        #: How the schema differs from this version's, as of the last step; None before the first.
        self.schema: Comparison | None = None

    @property
    def age_s(self) -> float:
        """Seconds since the latest sample was taken, by whomever; before the first, since this replica began."""
        return time.monotonic() - self._taken_s

    async def step(self) -> float:
        """Reads the sample; seconds until the next step."""
        now_s = time.monotonic()
        async with self._database.transaction() as transaction:
            [(mine,)] = await transaction.fetch("sample_lock", {})
            latest = await transaction.fetch("sample", {})
            if mine and (not latest or latest[0][0] >= self.every_s):
                gauges = await _take(transaction)
                await transaction.fetch("sample_write", {"locked_by": self._locked_by, "gauges": Jsonb(gauges)})
                latest = [(0.0, gauges)]
            self.schema = judge(await transaction.fetch("migrations", {}), self._wanted)
        for age_s, found in latest:
            self._taken_s = now_s - age_s
            self.gauges = [Gauge(*each) for each in found]
        return self.every_s * self._rng.uniform(0.8, 1.2)


def cap_of_each(registered: int) -> int:
    """Where the counts of each destination stop, with so many of them. tests/metrics/pages.py has what that costs."""
    return min(CAP, fair(CAP_OF_ALL, registered, least=CAP_AT_LEAST))


async def _take(transaction: Transaction) -> list[Gauge]:
    cap = cap_of_each(len(await transaction.fetch("registry", {})))
    status = [DestinationStatus(*row) for row in await transaction.fetch("status", {"cap": cap})]
    names = [each.name for each in status]
    lanes = await transaction.fetch(
        "sample_lanes", {"destinations": names, "walk": fair(LANES, len(names)), "cap": BEHIND}
    )
    [(unrouted,)] = await transaction.fetch("unrouted", {"cap": CAP})
    [(held_s, held_transactions, dead_tuples)] = await transaction.fetch("vacuum", {})
    return [
        *(gauge for each in status for gauge in _of_destination(each)),
        *_of_lanes(names, lanes),
        Gauge("relay.jobs.unrouted", "", "", unrouted),
        Gauge("relay.vacuum.held", "", "", held_s),
        Gauge("relay.vacuum.horizon", "", "", held_transactions),
        Gauge("relay.table.dead_rows", "", "", dead_tuples),
    ]


def _of_destination(each: DestinationStatus) -> list[Gauge]:
    unfinished = each.due + each.later + each.running + each.blocked
    values = {
        "relay.backlog.due": each.due,
        "relay.backlog.age": each.oldest_due_age_s or 0.0,
        "relay.backlog.later": each.later,
        "relay.backlog.blocked": each.blocked,
        "relay.dead.letters": each.dead,
        "relay.destination.paused": each.paused_why is not None,
        "relay.jobs.orphaned": unfinished if each.retired or not each.registered else 0,
    }
    return [Gauge(name, each.name, "", float(value)) for name, value in values.items()]


def _of_lanes(names: Sequence[str], rows: Sequence[Row]) -> list[Gauge]:
    found = {(row[0], row[1]): row[2:] for row in rows}
    return [
        Gauge(name, destination, reason, value)
        for destination in names
        for reason in REASONS
        for name, value in zip(
            ("relay.lanes.blocked", "relay.lanes.waiting", "relay.lanes.age"),
            found.get((destination, reason), (0, 0, 0.0)),
            strict=True,
        )
    ]
