from itertools import count

import pytest

from relay.demo.report import Arrival, Event, Latency, Row, Summary, Tally, percentile

_clock = count(1)


def arrival(
    sequence: int,
    key: str,
    *,
    at: tuple[float, float] | None = None,
    accepted: bool = True,
    verified: bool = True,
) -> Arrival:
    """A request of the lane (audit, order-1); without `at` it starts after all others have ended."""
    started_s, ended_s = at or (tick := float(next(_clock)), tick + 0.5)
    return Arrival("audit", "order-1", sequence, key, started_s, ended_s, accepted, verified)


def told(*, events: str = "", arrivals: tuple[Arrival, ...] = (), rows: tuple[Row, ...] = ()) -> Summary:
    """The summary after these committed events (one letter each, for audit only), requests and rows."""
    tally = Tally()
    for key in events:
        tally.commit(Event(key, "stock.moved", 0.0))
    for one in arrivals:
        tally.arrive(one)
    return tally.summary(rows, killed_replicas=0, postgres="18")


def row(number: int, key: str, status: str) -> Row:
    return Row(number, "audit", "order-1", key, status)


def test_an_event_is_owed_to_every_destination_that_subscribes_to_its_topic() -> None:
    tally = Tally()
    tally.commit(Event("a", "order.paid", 0.0))
    tally.commit(Event("b", "order.created", 0.0))
    tally.commit(Event("c", "stock.moved", 0.0))
    assert tally.expected == {
        ("audit", "a"), ("billing", "a"), ("warehouse", "a"),
        ("audit", "b"), ("billing", "b"),
        ("audit", "c"),
    }  # fmt: skip


def test_accepted_jobs_in_order_keep_every_promise() -> None:
    summary = told(
        events="ab",
        arrivals=(arrival(1, "a"), arrival(2, "b")),
        rows=(row(1, "a", "done"), row(2, "b", "done")),
    )
    assert summary.kept
    assert (summary.committed, summary.delivered, summary.lost, summary.inversions) == (2, 2, 0, 0)


def test_a_demo_without_jobs_proves_nothing() -> None:
    assert not told().kept


@pytest.mark.parametrize("rows", [(), (row(1, "a", "done"),)], ids=["no row", "a row that says done"])
def test_a_committed_job_that_never_arrived_is_lost(rows: tuple[Row, ...]) -> None:
    summary = told(events="a", rows=rows)
    assert summary.lost == 1
    assert not summary.kept


@pytest.mark.parametrize("status", ["pending", "running", "blocked", "unrouted", "discarded"])
def test_a_visible_job_that_should_have_arrived_is_unfinished_not_lost(status: str) -> None:
    summary = told(events="a", rows=(row(1, "a", status),))
    assert (summary.lost, summary.unfinished) == (0, 1)
    assert not summary.kept


def test_jobs_behind_a_dead_head_are_visible_and_jobs_before_it_are_not_excused() -> None:
    rows = (row(1, "a", "pending"), row(2, "b", "dead"), row(3, "c", "blocked"), row(4, "d", "pending"))
    summary = told(events="abcd", rows=rows)
    assert (summary.lost, summary.unfinished, summary.dead, summary.waiting_behind_dead) == (0, 1, 1, 2)


def test_only_the_poisoned_job_may_die() -> None:
    assert not told(events="a", rows=(row(1, "a", "dead"),)).kept


def test_an_attempt_after_a_refusal_is_a_retry_and_one_after_an_acceptance_a_duplicate() -> None:
    summary = told(
        events="a",
        arrivals=(arrival(1, "a", accepted=False), arrival(1, "a"), arrival(1, "a"), arrival(1, "a")),
    )
    assert (summary.delivered, summary.retries, summary.duplicates, summary.inversions) == (1, 1, 2, 0)


def test_going_back_to_an_earlier_job_is_an_inversion() -> None:
    assert told(arrivals=(arrival(2, "b"), arrival(1, "a"))).inversions == 1


def test_going_on_before_the_job_was_accepted_is_an_inversion() -> None:
    assert told(arrivals=(arrival(1, "a", accepted=False), arrival(2, "b"))).inversions == 1


def test_going_on_after_a_refused_duplicate_of_an_accepted_job_is_no_inversion() -> None:
    arrivals = (arrival(1, "a"), arrival(1, "a", accepted=False), arrival(2, "b"))
    assert told(arrivals=arrivals).inversions == 0


@pytest.mark.parametrize("sequence", [1, 2], ids=["of one job", "of two jobs"])
def test_two_requests_of_one_lane_at_the_same_time_are_an_inversion(sequence: int) -> None:
    arrivals = (arrival(1, "a", at=(1.0, 3.0)), arrival(sequence, "a", at=(2.9, 4.0)))
    assert told(arrivals=arrivals).inversions == 1


def test_a_short_request_within_a_long_one_is_an_inversion() -> None:
    arrivals = (arrival(1, "a", at=(2.0, 3.0)), arrival(1, "a", at=(1.0, 4.0)))
    assert told(arrivals=arrivals).inversions == 1


def test_another_entity_and_another_destination_have_an_order_of_their_own() -> None:
    arrivals = (
        Arrival("audit", "order-1", 9, "a", 1.0, 3.0, accepted=False, verified=True),
        Arrival("audit", "order-2", 5, "b", 1.5, 3.1, accepted=True, verified=True),
        Arrival("billing", "order-1", 4, "a", 1.6, 3.2, accepted=True, verified=True),
    )
    assert told(arrivals=arrivals).inversions == 0


def test_a_delivery_of_an_event_that_was_rolled_back_is_a_phantom() -> None:
    summary = told(events="a", arrivals=(arrival(1, "a"), arrival(2, "rolled back")))
    assert summary.phantoms == 1
    assert not summary.kept


def test_a_signature_that_does_not_verify_breaks_the_promise() -> None:
    summary = told(events="a", arrivals=(arrival(1, "a", verified=False),))
    assert summary.unverified == 1
    assert not summary.kept


def test_latency_is_from_the_commit_to_the_first_request_of_each_delivery() -> None:
    tally = Tally()
    tally.commit(Event("a", "stock.moved", 10.0))
    tally.arrive(arrival(1, "a", at=(10.004, 10.1), accepted=False))
    tally.arrive(arrival(1, "a", at=(12.0, 12.1)))
    assert tally.latency_ms() == Latency(p50=4.0, p99=4.0)


def test_a_percentile_is_the_nearest_rank() -> None:
    values = [float(n) for n in range(1, 101)]
    assert (percentile(values, 0.5), percentile(values, 0.99), percentile([], 0.5)) == (51.0, 100.0, None)
