"""Why a job is not delivered, or what became of it, in one sentence. All times come from the database's clock."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True)
class Holder:
    """The job that holds the lane. `due_in_s` is negative once it is due; `detail` is of its last failure."""

    id: int
    status: str
    attempts: int
    max_attempts: int | None
    due_in_s: float
    locked_by: str | None
    finished_at: datetime | None
    detail: str | None


@dataclass(frozen=True, slots=True)
class Operation:
    """The last thing that a person did to a job."""

    at: datetime
    actor: str
    verb: str
    why: str | None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One failed attempt; `response` is how the answer begins where that is UTF-8, else `response_base64` has it.

    `trace_id` is 32 hex digits, None where the attempt was not traced.
    """

    claim: int
    attempt: int
    failed_at: datetime
    replica: str
    error_class: str
    status: int | None
    duration_s: float
    detail: str
    trace_id: str | None
    response: str | None
    response_base64: str | None


@dataclass(frozen=True, slots=True)
class JobState:
    """A row of `outbox.job`, and with it all that its waiting depends on.

    `ahead` counts due jobs of the same destination and priority that come first. `holder` is the lane's, the
    job itself included; None where the job is in no lane. `failures` are in the order they happened.
    """

    id: int
    destination: str | None
    topic: str
    entity_key: str | None
    idempotency_key: str
    status: str
    priority: int
    attempts: int
    claims: int
    max_attempts: int | None
    holds_lane: bool
    redrive: bool
    created_at: datetime
    scheduled_at: datetime | None
    run_at: datetime
    finished_at: datetime | None
    locked_by: str | None
    locked_until: datetime | None
    content_type: str
    traceparent: str | None
    body_bytes: int
    due_in_s: float
    lease_left_s: float | None
    registered: bool
    paused_why: str | None
    ahead: int
    holder: Holder | None
    operation: Operation | None
    failures: Sequence[Attempt]


def why(job: JobState, *, budget: int | None, replicas: int) -> str:
    """The sentence. `budget` is the destination's `max_attempts` here, None where it is not configured here;
    `replicas` is how many are connected."""
    match job.status:
        case "done":
            return f"delivered at {instant(job.finished_at)}, {_count(job.attempts, 'attempt')}"
        case "discarded":
            return _discarded(job)
        case "dead":
            standing = "; its entity stands still behind it" if job.holds_lane else ""
            detail = job.failures[-1].detail if job.failures else "the record of its attempts is no longer kept"
            return f"dead since {instant(job.finished_at)}: {detail}{standing}; redrive or discard it"
        case "unrouted":
            return f"no destination subscribed to topic {job.topic} when it was inserted; `relay route` sends it on"
        case "running":
            return _running(job, budget)
    return _waiting(job, budget, replicas)


def instant(at: datetime | None) -> str:
    """A time as people read it in logs: UTC, to the second."""
    return "an unknown time" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"


def duration(seconds: float) -> str:
    """A length of time in its two largest units."""
    whole = round(seconds)
    for unit_s, unit, part_s, part in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= unit_s:
            rest = whole % unit_s // part_s
            return f"{whole // unit_s} {unit} {rest} {part}" if rest else f"{whole // unit_s} {unit}"
    return f"{whole} s"


def _discarded(job: JobState) -> str:
    done = job.operation
    if done is None:
        return f"discarded at {instant(job.finished_at)}"
    return f"discarded at {instant(job.finished_at)} by {done.actor}" + (f": {done.why}" if done.why else "")


def _running(job: JobState, budget: int | None) -> str:
    left_s = job.lease_left_s or 0.0
    lease = f"its lease holds {duration(left_s)} more" if left_s > 0 else _lapsed(left_s)
    return f"running on replica {job.locked_by}, attempt {_of(job.attempts, job.max_attempts, budget)}; {lease}"


def _lapsed(left_s: float) -> str:
    return f"its lease lapsed {duration(-left_s)} ago, and the next sweep of a replica takes it back"


def _waiting(job: JobState, budget: int | None, replicas: int) -> str:
    reasons = [] if job.paused_why is None else [f"destination {job.destination} is paused: {job.paused_why}"]
    holder = job.holder
    if holder is not None and holder.id != job.id:
        reasons.append(f"waits behind job {holder.id} of the same entity, which {_holding(holder, budget)}")
        sendable = holder.status == "pending" and holder.due_in_s <= 0
    else:
        sendable = job.due_in_s <= 0
        reasons.append(f"is due since {duration(-job.due_in_s)}" if sendable else _later(job, budget))
    if sendable and job.paused_why is None:
        reasons.append(_unsent(job, budget, replicas))
    return "; ".join(reasons)


def _holding(holder: Holder, budget: int | None) -> str:
    match holder.status:
        case "running":
            tries = _of(holder.attempts, holder.max_attempts, budget)
            return f"is running on replica {holder.locked_by}, attempt {tries}"
        case "dead":
            detail = holder.detail or "the record of its attempts is no longer kept"
            return f"is dead since {instant(holder.finished_at)}: {detail}; redrive or discard that one"
        case "blocked":
            return "is about to be woken by the next sweep of a replica"
    when = f"due in {duration(holder.due_in_s)}" if holder.due_in_s > 0 else "due"
    if holder.attempts == 0:
        return f"is {when}"
    tries = _of(holder.attempts, holder.max_attempts, budget)
    again = when.replace("due", "due again", 1)
    return f"failed {tries} attempts and is {again}" + (f": {holder.detail}" if holder.detail else "")


def _later(job: JobState, budget: int | None) -> str:
    if job.attempts or job.failures:
        detail = f": {job.failures[-1].detail}" if job.failures else ""
        tries = _of(job.attempts, job.max_attempts, budget)
        return f"failed {tries} attempts and is due again in {duration(job.due_in_s)}{detail}"
    return f"scheduled for {instant(job.run_at)}, in {duration(job.due_in_s)}"


def _unsent(job: JobState, budget: int | None, replicas: int) -> str:
    if budget is None and not job.registered:
        return f"no destination {job.destination} is registered or in this configuration: is the name misspelt?"
    if replicas == 0:
        return "no replica is connected"
    if budget is None:
        return f"destination {job.destination} is not in this configuration: does a connected replica have it?"
    ahead = f"{_count(job.ahead, 'due job')} of its priority first, " if job.ahead else ""
    return f"{ahead}it starts as soon as {job.destination} has room"


def _of(attempts: int, own: int | None, budget: int | None) -> str:
    most = own if own is not None else budget
    return str(attempts) if most is None else f"{attempts} of {most}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
