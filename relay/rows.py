"""Rows of the database to values of the model, and values to the parameters of our statements. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from relay.model import Destination, Failure, Job, Settlement

Row = tuple[Any, ...]
Parameters = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in one range of due rows: the (run_at, id) looked at last."""

    run_at: datetime | None = None
    id: int = 0


START = Mark()


@dataclass(frozen=True, slots=True)
class Range:
    """Where a claim looks: at most `width` due rows of one destination and priority, after `after`.

    `free` is how many jobs of the destination may start and `payload_bytes` how large they may be together, the
    same in each of its ranges.
    """

    destination: str
    priority: int
    free: int
    width: int
    after: Mark = START
    payload_bytes: int = 1 << 40


@dataclass(frozen=True, slots=True)
class Looked:
    """What a claim found in one range: how many due rows it could lock, and the last of them."""

    destination: str
    priority: int
    rows: int
    last: Mark


@dataclass(frozen=True, slots=True)
class Claimed:
    """The jobs a claim started, and what it looked at to find them."""

    jobs: list[Job]
    looked: list[Looked]


@dataclass(frozen=True, slots=True)
class Settled:
    """What a settle did: which jobs were ours, whose next jobs started here, and where jobs became due."""

    ids: frozenset[int]
    started: list[Job]
    due: list[str]


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """One job taken back from `locked_by`, whose lease had lapsed."""

    id: int
    destination: str
    entity_key: str | None
    status: str
    locked_by: str


def claim_parameters(ranges: Sequence[Range], *, narrow: bool) -> Parameters:
    """`narrow` looks at one row a range, whatever its width."""
    return {
        "destinations": [r.destination for r in ranges],
        "priorities": [r.priority for r in ranges],
        "frees": [r.free for r in ranges],
        "windows": [1 if narrow else r.width for r in ranges],
        "after_run_at": [r.after.run_at for r in ranges],
        "after_id": [r.after.id for r in ranges],
        "shares": [r.payload_bytes for r in ranges],
    }


def claimed(rows: Sequence[Row]) -> Claimed:
    """The rows of claim.sql: jobs, and with a null id what was looked at."""
    return Claimed(
        jobs=[job(row) for row in rows if row[0] is not None],
        looked=[Looked(row[1], row[14], row[15], Mark(row[16], row[17])) for row in rows if row[0] is None],
    )


def job(row: Row, chained: int = 0) -> Job:
    """One started job: the first fourteen columns of claim.sql and of settle_lanes.sql."""
    id_, destination, topic, entity_key, key, content_type, body, headers, attempts, claims, budget, *rest = row[:14]
    traceparent, tracestate, redrive = rest
    return Job(
        id_, destination, topic, entity_key, key, content_type, body, headers or {}, attempts, claims, budget,
        traceparent, tracestate, redrive, chained,
    )  # fmt: skip


def outcome_parameters(batch: Sequence[Settlement]) -> Parameters:
    """What settle.sql writes to the jobs."""
    return {
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


def settled(rows: Sequence[Row], lanes: Sequence[Row], batch: Sequence[Settlement]) -> Settled:
    """The rows of settle.sql and of settle_lanes.sql."""
    chained = {(s.job.destination, s.job.entity_key): s.job.chained + 1 for s in batch}
    return Settled(
        ids=frozenset(row[0] for row in rows),
        started=[job(row, chained[row[1], row[3]]) for row in lanes if row[14]],
        due=[row[1] for row in lanes if not row[14]],
    )


def policy_parameters(destinations: Sequence[Destination]) -> Parameters:
    """What reclaim.sql must know of each destination."""
    return {
        "destinations": [d.name for d in destinations],
        "max_attempts": [d.retry.max_attempts for d in destinations],
        "blocks": [d.on_dead == "block" for d in destinations],
    }
