"""Every metric of the relay: its name, unit, labels and meaning, and where its values come from.

docs/metrics.md says the same to people. Labels are destinations, error classes, loops and reasons: never an id, a key
or a URL.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from relay import __version__
from relay.telemetry.tally import Buckets, Counts, Gauge, Tally

Values = Iterable[tuple[tuple[str, ...], float]]
Distributions = Iterable[tuple[tuple[str, ...], Buckets]]


@dataclass(frozen=True, slots=True)
class Slots:
    """The slots of one destination: how many are used, of how many, and the state of its gate."""

    destination: str
    used: int
    limit: int
    state: str


@dataclass(frozen=True, slots=True)
class Sources:
    """What the values are read from. Each function costs next to nothing, and may be called from any thread.

    `behind_s` tells of each loop for how many seconds it has owed progress; `pool` is psycopg_pool's statistics.
    """

    tally: Tally
    leases_lost: Callable[[], int]
    lanes_healed: Callable[[], int]
    slots: Callable[[], Iterable[Slots]]
    behind_s: Callable[[], Iterable[tuple[str, float]]]
    pool: Callable[[], Mapping[str, int]]
    sample: Callable[[], Iterable[Gauge]]
    sample_age_s: Callable[[], float]
    outdated: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Instrument:
    """A counter or a gauge. `unit` is UCUM's; `values` come with the values of `labels`."""

    kind: Literal["counter", "gauge"]
    name: str
    unit: str
    labels: tuple[str, ...]
    meaning: str
    values: Callable[[Sources], Values]


@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram."""

    name: str
    unit: str
    labels: tuple[str, ...]
    meaning: str
    values: Callable[[Tally], Distributions]
    kind: Literal["histogram"] = "histogram"


_EACH = ("destination",)
_WHY = ("destination", "reason")


def _jobs(name: str, meaning: str, of: Callable[[Counts], int]) -> Instrument:
    def values(sources: Sources) -> Values:
        return [((destination,), of(counts)) for destination, counts in sources.tally.of.items()]

    return Instrument("counter", name, "{job}", _EACH, meaning, values)


def _slots(name: str, meaning: str, of: Callable[[Slots], int]) -> Instrument:
    def values(sources: Sources) -> Values:
        return [((slots.destination,), of(slots)) for slots in sources.slots()]

    return Instrument("gauge", name, "{slot}", _EACH, meaning, values)


def _pool(name: str, unit: str, meaning: str, key: str) -> Instrument:
    return Instrument("gauge", name, unit, (), meaning, lambda sources: [((), sources.pool()[key])])


def _sampled(name: str, unit: str, labels: tuple[str, ...], meaning: str) -> Instrument:
    def values(sources: Sources) -> Values:
        # Another version of the relay may have taken the sample: what this one does not know stays out.
        return [
            (tuple(getattr(each, label) for label in labels), each.value)
            for each in sources.sample()
            if each.name == name
        ]

    return Instrument("gauge", name, unit, labels, meaning, values)


def _failed(sources: Sources) -> Values:
    return [
        ((destination, error_class), number)
        for destination, counts in sources.tally.of.items()
        for error_class, number in counts.failed.items()
    ]


def _breaker(sources: Sources) -> Values:
    return [
        ((slots.destination, reason), float(slots.state == reason))
        for slots in sources.slots()
        for reason in ("half_open", "held", "open")
    ]


def _loops(sources: Sources) -> Values:
    return [((name,), behind_s) for name, behind_s in sources.behind_s()]


def _seconds(name: str, meaning: str, of: Callable[[Counts], Buckets]) -> Distribution:
    def values(tally: Tally) -> Distributions:
        return [((destination,), of(counts)) for destination, counts in tally.of.items()]

    return Distribution(name, "s", _EACH, meaning, values)


def _statements(name: str, unit: str, meaning: str, of: Callable[[Tally], Buckets]) -> Distribution:
    return Distribution(name, unit, (), meaning, lambda tally: [((), of(tally))])


INSTRUMENTS = (
    _jobs("relay.jobs.claimed", "Jobs that this replica started.", lambda c: c.claimed),
    _jobs("relay.jobs.delivered", "Jobs that were answered 2xx and are done.", lambda c: c.delivered),
    _jobs("relay.jobs.retried", "Failed attempts after which the job is tried again.", lambda c: c.retried),
    _jobs("relay.jobs.dead", "Jobs that became dead letters.", lambda c: c.dead),
    _jobs("relay.jobs.reclaimed", "Jobs taken back because a lease lapsed, whoever held it.", lambda c: c.reclaimed),
    _jobs("relay.jobs.malformed", "Jobs whose traceparent is malformed, and ignored.", lambda c: c.malformed),
    _jobs("relay.jobs.fenced", "Outcomes refused because the job is somebody else's by now.", lambda c: c.fenced),
    Instrument(
        "counter", "relay.attempts.failed", "{attempt}", ("destination", "error_class"),
        "Failed attempts, by what outbox.attempt calls their error class.", _failed,
    ),
    Instrument(
        "counter", "relay.leases.lost", "{lease}", (),
        "Leases that a renewal found to be somebody else's.", lambda s: [((), s.leases_lost())],
    ),
    Instrument(
        "counter", "relay.lanes.healed", "{lane}", (),
        "Lanes that stood still without a reason: each is a bug.", lambda s: [((), s.lanes_healed())],
    ),
    _slots("relay.slots.used", "Requests in flight.", lambda s: s.used),
    _slots("relay.slots.limit", "Most requests in flight: max_in_flight.", lambda s: s.limit),
    Instrument(
        "gauge", "relay.breaker.state", "", _WHY,
        "1 where this keeps the replica from sending: open, half_open, or held by a Retry-After.", _breaker,
    ),
    _pool("relay.pool.connections", "{connection}", "Connections to the database.", "pool_size"),
    _pool("relay.pool.limit", "{connection}", "Most of them: database.pool_size.", "pool_max"),
    _pool("relay.pool.idle", "{connection}", "Those that nobody uses.", "pool_available"),
    _pool("relay.pool.waiting", "{request}", "Who waits for one.", "requests_waiting"),
    Instrument(
        "gauge", "relay.loop.behind", "s", ("loop",),
        "Seconds since the loop made progress; waiting as planned is progress.", _loops,
    ),
    Instrument(
        "gauge", "relay.config.outdated", "", (),
        "1 while the configuration on disk is refused, and the one before it in use.",
        lambda s: [((), float(s.outdated()))],
    ),
    Instrument("gauge", "relay.build.info", "", ("version",), "1.", lambda _: [((__version__,), 1.0)]),
    _sampled("relay.backlog.due", "{job}", _EACH, "Jobs that may start now."),
    _sampled("relay.backlog.age", "s", _EACH, "Age of the oldest of them, since its insert or its run_at."),
    _sampled("relay.backlog.later", "{job}", _EACH, "Jobs that wait for a retry, or for their run_at."),
    _sampled("relay.backlog.blocked", "{job}", _EACH, "Jobs behind an earlier one of their entity."),
    _sampled("relay.dead.letters", "{job}", _EACH, "Dead letters."),
    _sampled("relay.lanes.blocked", "{lane}", _WHY, "Lanes that stand still with jobs behind, and why."),
    _sampled("relay.lanes.waiting", "{job}", _WHY, "Jobs behind them."),
    _sampled("relay.lanes.age", "s", _WHY, "Age of the oldest job that holds one of them up."),
    _sampled("relay.destination.paused", "", _EACH, "1 where the destination is paused."),
    _sampled("relay.jobs.unrouted", "{job}", (), "Jobs that nobody subscribed to."),
    _sampled("relay.jobs.orphaned", "{job}", _EACH, "Unfinished jobs of a destination not registered, or retired."),
    _sampled("relay.vacuum.held", "s", (), "Age of the oldest transaction that holds back vacuum."),
    _sampled("relay.vacuum.horizon", "{transaction}", (), "Transactions begun since, or since a replication slot's."),
    _sampled("relay.table.dead_rows", "{row}", (), "Dead rows of the job table."),
    Instrument(
        "gauge", "relay.sample.age", "s", (),
        "Age of the sample, from which the gauges that cost a query come.", lambda s: [((), s.sample_age_s())],
    ),
)  # fmt: skip

DISTRIBUTIONS = (
    _seconds("relay.attempt.duration", "How long attempts took.", lambda c: c.attempt_s),
    _seconds("relay.delivery.latency", "From a job's insert, or its run_at, to the 2xx.", lambda c: c.latency_s),
    _statements("relay.claim.duration", "s", "How long claims took.", lambda t: t.claim_s),
    _statements("relay.claim.size", "{job}", "Jobs that a claim started.", lambda t: t.claim_jobs),
    _statements("relay.settle.duration", "s", "How long settles took.", lambda t: t.settle_s),
    _statements("relay.settle.size", "{job}", "Outcomes that a settle wrote.", lambda t: t.settle_jobs),
)
