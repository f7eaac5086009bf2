"""The sentence for each situation of a job."""

import dataclasses
from datetime import UTC, datetime

import pytest

from relay.rules.why import Attempt, Holder, JobState, Operation, duration, why

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
HOLDER = Holder(
    id=41, status="pending", attempts=3, max_attempts=None, due_in_s=12.2, locked_by=None, finished_at=None,
    detail="503 Service Unavailable",
)  # fmt: skip
FAILURE = Attempt(3, 3, AT, "r1", "status", 503, 0.1, "503 Service Unavailable", None, "", None)
PLAIN = JobState(
    id=42, destination="billing", topic="order.paid", entity_key=None, idempotency_key="k", status="pending",
    priority=1, attempts=0, claims=0, max_attempts=None, holds_lane=True, redrive=False, created_at=AT,
    scheduled_at=None, run_at=AT, finished_at=None, locked_by=None, locked_until=None,
    content_type="application/json", traceparent=None, body_bytes=2, due_in_s=-3.0, lease_left_s=None,
    registered=True, paused_why=None, ahead=0, holder=None, operation=None, failures=(),
)  # fmt: skip


def told(*, budget: int | None = 12, replicas: int = 1, holder: Holder | None = None, **changes: object) -> str:
    changed = dataclasses.replace(PLAIN, holder=holder, **changes)  # type: ignore[arg-type]
    return why(changed, budget=budget, replicas=replicas)


def behind(*, budget: int | None = 12, replicas: int = 1, **changes: object) -> str:
    """The sentence of a blocked job whose lane is held by job 41, changed like this."""
    holder = dataclasses.replace(HOLDER, **changes)  # type: ignore[arg-type]
    text = told(budget=budget, replicas=replicas, status="blocked", entity_key="order-1", holder=holder)
    start = "waits behind job 41 of the same entity, which "
    assert text.startswith(start)
    return text.removeprefix(start)


def test_behind_a_job_that_waits_for_its_retry() -> None:
    assert behind() == "failed 3 of 12 attempts and is due again in 12 s: 503 Service Unavailable"


def test_behind_a_job_with_a_budget_of_its_own() -> None:
    assert behind(max_attempts=5).startswith("failed 3 of 5 attempts")


def test_behind_a_job_whose_budget_is_not_known_here() -> None:
    assert behind(budget=None).startswith("failed 3 attempts")


def test_behind_a_job_that_is_due_and_nobody_is_there_to_send_it() -> None:
    assert behind(attempts=0, due_in_s=-1.0, replicas=0) == "is due; no replica is connected"


def test_behind_a_job_that_is_scheduled() -> None:
    assert behind(attempts=0, due_in_s=7200.0) == "is due in 2 h"


def test_behind_a_running_job() -> None:
    assert behind(status="running", locked_by="r1") == "is running on replica r1, attempt 3 of 12"


def test_behind_a_dead_job() -> None:
    expected = "is dead since 2026-01-02 03:04:05Z: 503 Service Unavailable; redrive or discard that one"
    assert behind(status="dead", finished_at=AT) == expected


def test_due_with_room() -> None:
    assert told() == "is due since 3 s; it starts as soon as billing has room"


def test_due_behind_others() -> None:
    assert told(ahead=2) == "is due since 3 s; 2 due jobs of its priority first, it starts as soon as billing has room"


def test_due_without_a_replica() -> None:
    assert told(replicas=0) == "is due since 3 s; no replica is connected"


def test_due_at_a_destination_that_is_not_configured() -> None:
    assert "destination billing is not in this configuration" in told(budget=None)


def test_due_at_a_destination_that_does_not_exist() -> None:
    assert "no destination billing is registered" in told(budget=None, registered=False, replicas=0)


def test_paused() -> None:
    assert told(paused_why="maintenance") == "destination billing is paused: maintenance; is due since 3 s"


def test_waiting_for_its_own_retry() -> None:
    text = told(attempts=3, due_in_s=80.0, failures=(FAILURE,))
    assert text == "failed 3 of 12 attempts and is due again in 1 min 20 s: 503 Service Unavailable"


def test_scheduled() -> None:
    assert told(due_in_s=90_000.0) == "scheduled for 2026-01-02 03:04:05Z, in 1 d 1 h"


def test_running() -> None:
    text = told(status="running", attempts=1, locked_by="r1", lease_left_s=45.0)
    assert text == "running on replica r1, attempt 1 of 12; its lease holds 45 s more"


def test_running_with_a_lapsed_lease() -> None:
    text = told(status="running", attempts=1, locked_by="r1", lease_left_s=-5.0)
    assert text.endswith("; its lease lapsed 5 s ago, and the next sweep of a replica takes it back")


@pytest.mark.parametrize(("attempts", "words"), [(1, "1 attempt"), (2, "2 attempts")])
def test_delivered(attempts: int, words: str) -> None:
    assert told(status="done", finished_at=AT, attempts=attempts) == f"delivered at 2026-01-02 03:04:05Z, {words}"


def test_dead_at_the_head_of_its_entity() -> None:
    text = told(status="dead", finished_at=AT, failures=(FAILURE,), entity_key="order-1")
    start = "dead since 2026-01-02 03:04:05Z: 503 Service Unavailable; "
    assert text == start + "its entity stands still behind it; redrive or discard it"


def test_discarded_names_the_person() -> None:
    operation = Operation(AT, "ada@desk", "cancel", "withdrawn")
    text = told(status="discarded", finished_at=AT, operation=operation)
    assert text == "discarded at 2026-01-02 03:04:05Z by ada@desk: withdrawn"


def test_unrouted() -> None:
    assert told(status="unrouted", destination=None) == (
        "no destination subscribed to topic order.paid when it was inserted; `relay route` sends it on"
    )


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.6, "1 min"), (61, "1 min 1 s"), (3600, "1 h"), (180_000, "2 d 2 h")]
)
def test_a_duration_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text
