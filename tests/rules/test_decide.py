from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.model import Answer, Destination, ErrorClass, Fault, Job, RetryPolicy, Settlement
from relay.rules.decide import decide

JOB = Job(
    id=7,
    destination="shop",
    topic="order.paid",
    entity_key="order-42",
    idempotency_key="k",
    content_type="application/json",
    body=b"{}",
    headers={},
    attempts=1,
    claims=1,
)
SHOP = Destination("shop", "https://shop.test/")
REFUSED = Fault(ErrorClass.CONNECT, "connection refused")


def answer(status: int, **headers: str) -> Answer:
    return Answer(status, {name.replace("_", "-"): value for name, value in headers.items()}, b"the answer")


def settle(job: Job, result: Answer | Fault, destination: Destination = SHOP, rng: float = 0.0) -> Settlement:
    return decide(job, result, destination, duration_s=0.5, rng=rng, now_epoch_s=0.0)


def test_a_delivered_job_is_done_and_leaves_no_failure() -> None:
    assert settle(JOB, answer(204)) == Settlement(JOB, "done")


def test_a_failed_job_is_pending_after_the_backoff_of_its_attempt() -> None:
    settled = settle(replace(JOB, attempts=3), REFUSED)
    assert (settled.status, settled.delay_s, settled.charged) == ("pending", 80.0, True)


def test_a_wait_that_the_receiver_asked_for_lengthens_the_delay() -> None:
    assert settle(JOB, answer(503, retry_after="60")).delay_s == 60


def test_what_is_kept_of_an_answer_is_as_it_came_but_for_credentials_that_were_said_back() -> None:
    shop = replace(SHOP, headers=(("Authorization", "Bearer abc.def-0123456789"), ("X-Env", "live")))
    said = Answer(401, {}, b'no: {"authorization": "Bearer abc.def-0123456789", "env": "live"}')
    failure = settle(JOB, said, shop).failure
    assert failure is not None
    assert failure.response == b'no: {"authorization": "Bearer [withheld]", "env": "live"}'


def test_a_job_is_dead_when_the_attempt_was_the_last_of_its_destinations_budget() -> None:
    destination = replace(SHOP, retry=RetryPolicy(max_attempts=3))
    assert settle(replace(JOB, attempts=2), REFUSED, destination).status == "pending"
    assert settle(replace(JOB, attempts=3), REFUSED, destination).status == "dead"


def test_a_rows_own_budget_replaces_the_destinations() -> None:
    assert settle(replace(JOB, attempts=12, max_attempts=13), REFUSED).status == "pending"
    assert settle(replace(JOB, attempts=1, max_attempts=1), REFUSED).status == "dead"


def test_a_job_that_killed_its_worker_beyond_its_budget_is_dead_at_the_next_failure() -> None:
    assert settle(replace(JOB, attempts=99), REFUSED).status == "dead"


def test_a_permanent_status_is_dead_on_the_first_attempt() -> None:
    settled = settle(JOB, answer(422), replace(SHOP, permanent_statuses=frozenset({422})))
    assert settled.status == "dead"
    assert settled.failure is not None
    assert settled.failure.detail == "422 Unprocessable Entity"


@pytest.mark.parametrize(
    ("on_dead", "entity_key", "holds"),
    [("block", "order-42", True), ("block", None, False), ("skip", "order-42", False), ("skip", None, False)],
)
def test_a_dead_job_holds_its_lane_only_where_it_has_one_and_the_policy_is_block(
    on_dead: str, entity_key: str | None, *, holds: bool
) -> None:
    destination = replace(SHOP, on_dead=on_dead)  # type: ignore[arg-type]
    job = replace(JOB, entity_key=entity_key, attempts=12)
    assert settle(job, REFUSED, destination).holds_lane is holds


def test_410_gives_the_attempt_back_and_pauses_the_destination() -> None:
    settled = settle(replace(JOB, attempts=12), answer(410))
    assert (settled.status, settled.charged, settled.pauses, settled.delay_s) == ("pending", False, True, 5.0)
    assert settled.failure is not None


def test_a_failure_keeps_status_response_and_duration_of_an_answer() -> None:
    failure = settle(JOB, answer(500)).failure
    assert failure is not None
    assert failure.error_class is ErrorClass.STATUS
    assert (failure.status, failure.response, failure.duration_s) == (500, b"the answer", 0.5)


def test_a_failure_without_an_answer_keeps_class_and_detail() -> None:
    failure = settle(JOB, REFUSED).failure
    assert failure is not None
    assert failure.error_class is ErrorClass.CONNECT
    assert (failure.detail, failure.status, failure.response) == ("connection refused", None, b"")


results = st.builds(answer, st.integers(100, 599)) | st.builds(Fault, st.sampled_from(ErrorClass), st.text())


@given(results, st.integers(1, 20), st.none() | st.integers(1, 20), st.floats(0, 1, exclude_max=True))
def test_every_result_settles_the_job_it_was_given_and_only_2xx_is_done(
    result: Answer | Fault, attempts: int, max_attempts: int | None, rng: float
) -> None:
    job = replace(JOB, attempts=attempts, max_attempts=max_attempts)
    settled = settle(job, result, rng=rng)
    delivered = isinstance(result, Answer) and 200 <= result.status <= 299
    assert settled.job is job
    assert (settled.status == "done") == delivered
    assert (settled.failure is None) == delivered
    assert settled.chain is False
    assert (settled.delay_s > 0) == (settled.status == "pending")
    assert settled.status == "dead" or not settled.holds_lane
