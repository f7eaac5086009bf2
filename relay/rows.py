"""Rows of the database to values of the model, and values to the parameters of our statements. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from relay.model import Destination, Failure, Job, Settlement

Row = tuple[Any, ...]
Parameters = Mapping[str, object]


class Mark(NamedTuple):
    """A place in one range of due rows: the (run_at, id) looked at last."""

    run_at: datetime | None = None
    id: int = 0


START = Mark()


@dataclass(frozen=True, slots=True)
class Range:
    """Where a claim looks: at most `width` due rows of one destination and priority, after `after`.

    It holds first attempts, or `retries`. `free` is how many jobs of the destination may start, `retries_free` how
    many of these may be retries, and `payload_bytes` how large they may be together, the same in each of its ranges.
    """

    destination: str
    priority: int
    free: int
    width: int
    after: Mark = START
    payload_bytes: int = 1 << 40
    retries: bool = False
    retries_free: int = 1 << 30


@dataclass(frozen=True, slots=True)
class Looked:
    """What a claim found in one range: how many due rows it could lock, and the last of them."""

    destination: str
    priority: int
    rows: int
    last: Mark
    retries: bool = False


class FirstDue(NamedTuple):
    """A range with due rows, and the place before the first of them."""

    destination: str
    priority: int
    retries: bool
    before: Mark


@dataclass(frozen=True, slots=True)
class Claimed:
    """The jobs a claim started, and what it looked at to find them."""

    jobs: list[Job]
    looked: list[Looked]


@dataclass(frozen=True, slots=True)
class Settled:
    """What a settle did: which jobs (id, claims) were ours, whose next jobs started here, and where jobs became due.

    One batch may hold two outcomes of a job: the late one of a lapsed lease, and that of the next.
    """

    tokens: frozenset[tuple[int, int]]
    started: list[Job]
    due: list[str]

    @property
    def ids(self) -> frozenset[int]:
        """The jobs that were ours."""
        return frozenset(id_ for id_, _ in self.tokens)


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """One job taken back from `locked_by`, whose lease had lapsed."""

    id: int
    destination: str
    entity_key: str | None
    status: str
    locked_by: str


class Deleted(NamedTuple):
    """How many rows a batch of retention deleted, and the time of the youngest, from which the next one goes on."""

    rows: int
    up_to: datetime | None


def claim_parameters(ranges: Sequence[Range], *, narrow: bool) -> Parameters:
    """`narrow` looks at one row a range, whatever its width."""
    return {
        "destinations": [r.destination for r in ranges],
        "priorities": [r.priority for r in ranges],
        "retries": [r.retries for r in ranges],
        "frees": [r.free for r in ranges],
        "retries_free": [r.retries_free for r in ranges],
        "windows": [1 if narrow else r.width for r in ranges],
        "after_run_at": [r.after.run_at for r in ranges],
        "after_id": [r.after.id for r in ranges],
        "shares": [r.payload_bytes for r in ranges],
    }


def claimed(rows: Sequence[Row], sent_s: float) -> Claimed:
    """The rows of claim.sql, sent at `sent_s` (monotonic): jobs, and with a null id what was looked at."""
    return Claimed(
        jobs=[job(row, sent_s) for row in rows if row[0] is not None],
        looked=[Looked(row[1], row[15], row[16], Mark(row[17], row[18]), row[19]) for row in rows if row[0] is None],
    )


def first_due(rows: Sequence[Row]) -> list[FirstDue]:
    """The rows of first_due.sql."""
    return [FirstDue(name, priority, retries, Mark(run_at, id_ - 1)) for name, priority, retries, run_at, id_ in rows]


def job(row: Row, sent_s: float, chained: int = 0) -> Job:
    """One started job: the first fifteen columns of claim.sql and of settle_lanes.sql."""
    id_, destination, topic, entity_key, key, content_type, body, headers, attempts, claims, budget, *rest = row[:15]
    traceparent, tracestate, redrive, waited_s = rest
    return Job(
        id_, destination, topic, entity_key, key, content_type, body, headers or {}, attempts, claims, budget,
        traceparent, tracestate, redrive, chained, sent_s - waited_s,
    )  # fmt: skip


def outcome_parameters(batch: Sequence[Settlement], *, keep_done: bool = True) -> Parameters:
    """What settle.sql writes to the jobs."""
    return {
        "keep_done": keep_done,
        "ids": [s.job.id for s in batch],
        "claims": [s.job.claims for s in batch],
        "statuses": [s.status for s in batch],
        "delays_s": [s.delay_s for s in batch],
        "charged": [s.charged for s in batch],
        "holds_lane": [s.status == "pending" or s.holds_lane for s in batch],
    }


def failure_parameters(batch: Sequence[Settlement]) -> Parameters:
    """What settle.sql keeps of the attempts that failed."""
    failed: list[tuple[Job, Failure]] = [(s.job, s.failure) for s in batch if s.failure is not None]
    return {
        "failed_ids": [j.id for j, _ in failed],
        "failed_claims": [j.claims for j, _ in failed],
        "failed_attempts": [j.attempts for j, _ in failed],
        "error_classes": [f.error_class.value for _, f in failed],
        # PostgreSQL's text has no NUL, and whatever a receiver answers must not keep a result from being written.
        "details": [f.detail.replace("\0", "\ufffd") for _, f in failed],
        "http_statuses": [f.status for _, f in failed],
        "durations_s": [f.duration_s for _, f in failed],
        "responses": [f.response for _, f in failed],
        "trace_ids": [f.trace_id for _, f in failed],
    }


def lane_parameters(lanes: Mapping[tuple[str, str], bool]) -> Parameters:
    """Lanes for settle_lanes.sql, sorted, each with whether its next job may start here."""
    ordered = sorted(lanes.items())
    return {
        "destinations": [destination for (destination, _), _ in ordered],
        "entity_keys": [entity_key for (_, entity_key), _ in ordered],
        "chains": [chain for _, chain in ordered],
    }


def lanes_of(batch: Sequence[Settlement]) -> dict[tuple[str, str], bool]:
    """The lanes a batch of settlements touches."""
    return {(s.job.destination, s.job.entity_key): s.chain for s in batch if s.job.entity_key is not None}


def settled(rows: Sequence[Row], lanes: Sequence[Row], batch: Sequence[Settlement], sent_s: float) -> Settled:
    """The rows of settle.sql and of settle_lanes.sql, sent at `sent_s` (monotonic)."""
    chained = {(s.job.destination, s.job.entity_key): s.job.chained + 1 for s in batch}
    return Settled(
        tokens=frozenset((row[0], row[1]) for row in rows),
        started=[job(row, sent_s, chained[row[1], row[3]]) for row in lanes if row[15]],
        due=[row[1] for row in lanes if not row[15]],
    )


def policy_parameters(destinations: Sequence[Destination]) -> Parameters:
    """What reclaim.sql must know of each destination."""
    return {
        "destinations": [d.name for d in destinations],
        "max_attempts": [d.retry.max_attempts for d in destinations],
        "blocks": [d.on_dead == "block" for d in destinations],
    }
