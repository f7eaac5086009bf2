import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from relay.model import Answer, ErrorClass, Fault
from relay.rules.gate import FAILURES_TO_OPEN, FIRST_OPEN_S, LONGEST_OPEN_S, Gate, Signal, signal


def attempt(gate: Gate, outcome: Signal, now_s: float = 0.0, hint_s: float | None = None) -> None:
    gate.take(1, now_s)
    gate.finish(outcome, now_s, 0.0, hint_s)


def opened(max_in_flight: int = 64) -> Gate:
    """A gate that has opened at 0 s, for 1 s."""
    gate = Gate(max_in_flight)
    for _ in range(FAILURES_TO_OPEN):
        attempt(gate, "failure")
    return gate


def test_a_closed_gate_grants_what_is_not_in_flight() -> None:
    gate = Gate(64)
    assert (gate.state(0), gate.free(0), gate.next_change_s(0)) == ("closed", 64, 0)
    gate.take(60, 0)
    assert gate.free(0) == 4
    gate.take(4, 0)
    assert (gate.free(0), gate.next_change_s(0)) == (0, None)


def test_a_finish_followed_by_take_passes_a_slot_on() -> None:
    gate = Gate(2)
    gate.take(2, 0)
    gate.finish("success", 0, 0.0)
    gate.take(1, 0)
    assert (gate.in_flight, gate.free(0)) == (2, 0)


def test_more_than_the_maximum_cannot_be_taken() -> None:
    gate = Gate(4)
    gate.take(3, 0)
    with pytest.raises(ValueError, match="cannot take 2 slots: 3 of 4 are in flight"):
        gate.take(2, 0)
    assert gate.in_flight == 3


def test_what_is_not_in_flight_cannot_be_finished_or_given_back() -> None:
    gate = Gate(4)
    gate.take(1, 0, retry=True)
    with pytest.raises(ValueError, match="cannot free 1 slots: 0 first attempts are in flight"):
        gate.finish("success", 0, 0.0)
    with pytest.raises(ValueError, match="cannot free 2 slots: 1 retries are in flight"):
        gate.give_back(2, retry=True)
    assert gate.in_flight == 1


def test_failures_in_a_row_open_the_gate_and_nothing_is_granted_then() -> None:
    gate = opened()
    assert (gate.state(0.999), gate.free(0.999)) == ("open", 0)
    assert gate.next_change_s(0.25) == 0.75


def test_one_success_among_failures_keeps_the_gate_closed() -> None:
    gate = Gate(64)
    for i in range(10 * FAILURES_TO_OPEN):
        attempt(gate, "success" if i % FAILURES_TO_OPEN == 0 else "failure")
    assert gate.state(0) == "closed"


def test_neutral_ends_neither_count_nor_break_a_row_of_failures() -> None:
    gate = Gate(64)
    for _ in range(FAILURES_TO_OPEN):
        assert gate.state(0) == "closed"
        attempt(gate, "neutral")
        attempt(gate, "failure")
    assert gate.state(0) == "open"


def test_a_half_open_gate_grants_exactly_one_probe() -> None:
    gate = opened()
    assert (gate.state(1), gate.free(1), gate.next_change_s(1)) == ("half_open", 1, 0)
    gate.take(1, 1)
    assert (gate.state(1), gate.free(1), gate.next_change_s(1)) == ("half_open", 0, None)


def test_a_half_open_gate_waits_until_older_attempts_have_ended() -> None:
    gate = Gate(64)
    gate.take(FAILURES_TO_OPEN + 2, 0)
    for _ in range(FAILURES_TO_OPEN):
        gate.finish("failure", 0, 0.0)
    assert (gate.state(1), gate.free(1)) == ("half_open", 0)
    gate.finish("failure", 1, 0.0)
    gate.finish("success", 1, 0.0)
    assert (gate.state(1), gate.free(1)) == ("half_open", 1)


def test_a_probe_that_succeeds_closes_the_gate_with_a_window_that_grows_by_one_with_each_success() -> None:
    gate = opened(max_in_flight=6)
    granted = []
    for _ in range(6):
        attempt(gate, "success", 1)
        granted.append(gate.free(1))
    assert granted == [2, 3, 4, 5, 6, 6]


def test_each_probe_that_fails_doubles_the_open_time_up_to_its_cap() -> None:
    gate, now_s, waits = opened(), 0.0, []
    for _ in range(9):
        wait_s = gate.next_change_s(now_s)
        assert wait_s is not None
        waits.append(wait_s)
        now_s += wait_s
        attempt(gate, "failure", now_s)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_the_open_time_starts_again_only_after_the_whole_window_is_back() -> None:
    gate = opened(max_in_flight=4)
    attempt(gate, "success", 1)
    for _ in range(FAILURES_TO_OPEN):
        attempt(gate, "failure", 1)
    assert gate.next_change_s(1) == 2
    for _ in range(3):
        attempt(gate, "success", 3)
    for _ in range(FAILURES_TO_OPEN):
        attempt(gate, "failure", 3)
    assert gate.next_change_s(3) == 1


def test_a_probe_given_back_or_ended_by_our_own_fault_is_followed_by_another() -> None:
    gate = opened()
    gate.take(1, 1)
    gate.give_back(1)
    assert (gate.state(1), gate.free(1)) == ("half_open", 1)
    attempt(gate, "neutral", 1)
    assert (gate.state(1), gate.free(1)) == ("half_open", 1)
    attempt(gate, "success", 1)
    assert gate.state(1) == "closed"


def test_attempts_that_were_in_flight_when_the_gate_opened_do_not_lengthen_its_open_time() -> None:
    gate = Gate(64)
    gate.take(64, 0)
    for _ in range(64):
        gate.finish("failure", 0, 0.0)
    assert gate.next_change_s(0) == FIRST_OPEN_S


@given(st.floats(0, 1, exclude_max=True))
def test_jitter_only_lengthens_the_open_time(rng: float) -> None:
    gate = Gate(FAILURES_TO_OPEN)
    gate.take(FAILURES_TO_OPEN, 0)
    for _ in range(FAILURES_TO_OPEN):
        gate.finish("failure", 0, rng)
    wait_s = gate.next_change_s(0)
    assert wait_s is not None
    assert FIRST_OPEN_S <= wait_s <= 1.25 * FIRST_OPEN_S


def test_one_retry_after_holds_the_destination_and_ends_with_a_probe() -> None:
    gate = Gate(64)
    attempt(gate, "failure", 0, hint_s=30)
    assert (gate.state(29.9), gate.free(29.9), gate.next_change_s(10)) == ("held", 0, 20)
    assert (gate.state(30), gate.free(30)) == ("half_open", 1)


def test_a_retry_after_never_shortens_a_wait_and_a_longer_one_extends_it() -> None:
    gate = Gate(64)
    gate.take(3, 0)
    gate.finish("failure", 0, 0.0, 30)
    gate.finish("failure", 0, 0.0, 10)
    assert gate.next_change_s(0) == 30
    gate.finish("failure", 0, 0.0, 60)
    assert gate.next_change_s(0) == 60


def test_a_probe_answered_with_a_short_retry_after_waits_as_long_as_the_open_time() -> None:
    gate = opened()
    attempt(gate, "failure", 1, hint_s=1)
    assert (gate.state(1), gate.next_change_s(1)) == ("open", 2)


def test_a_retry_after_in_the_past_holds_nothing() -> None:
    gate = Gate(64)
    attempt(gate, "failure", 0, hint_s=0)
    assert gate.state(0) == "closed"


def test_a_retry_after_of_50_years_holds_no_longer_than_its_cap() -> None:
    gate = Gate(64, hold_cap_s=100)
    attempt(gate, "failure", 0, hint_s=1.6e9)
    assert gate.next_change_s(0) == 100


def test_a_paused_gate_grants_nothing_until_it_is_resumed_and_then_one_probe() -> None:
    gate = Gate(64)
    gate.pause()
    assert (gate.state(0), gate.free(1e9), gate.next_change_s(0)) == ("paused", 0, None)
    gate.resume()
    assert (gate.state(0), gate.free(0)) == ("half_open", 1)


def test_resuming_a_gate_that_is_not_paused_changes_nothing() -> None:
    gate = opened()
    gate.resume()
    assert gate.state(0) == "open"


@pytest.mark.parametrize(("max_in_flight", "most"), [(1, 1), (2, 1), (3, 2), (4, 3), (7, 5), (64, 48)])
def test_retries_hold_at_most_three_quarters_of_the_slots_and_at_least_one(max_in_flight: int, most: int) -> None:
    gate = Gate(max_in_flight)
    assert gate.free_for_retries(0) == most
    gate.take(most, 0, retry=True)
    assert (gate.free_for_retries(0), gate.free(0)) == (0, max_in_flight - most)


def test_a_slot_that_a_retry_leaves_is_for_retries_again_and_that_of_a_first_attempt_is_not() -> None:
    gate = Gate(4)
    gate.take(3, 0, retry=True)
    gate.take(1, 0)
    gate.finish("success", 0, 0.0)
    assert (gate.free(0), gate.free_for_retries(0)) == (1, 0)
    gate.finish("success", 0, 0.0, retry=True)
    assert (gate.free(0), gate.free_for_retries(0)) == (2, 1)
    gate.give_back(1, retry=True)
    assert (gate.free(0), gate.free_for_retries(0)) == (3, 2)


def test_first_attempts_may_take_every_slot() -> None:
    gate = Gate(4)
    gate.take(4, 0)
    assert (gate.free(0), gate.free_for_retries(0)) == (0, 0)


def test_a_window_that_is_still_small_after_trouble_keeps_a_slot_too() -> None:
    gate = opened(max_in_flight=64)
    assert gate.free_for_retries(1) == 1
    attempt(gate, "success", 1)
    assert (gate.free(1), gate.free_for_retries(1)) == (2, 1)


def test_a_receiver_that_comes_back_meets_one_probe_and_then_twice_as_many_requests_each_time() -> None:
    gate, waiting, waves = opened(), 1_000, []
    while waiting:
        wave = min(waiting, gate.free(1))
        gate.take(wave, 1)
        for _ in range(wave):
            gate.finish("success", 1, 0.0)
        waves.append(wave)
        waiting -= wave
    assert waves[:8] == [1, 2, 4, 8, 16, 32, 64, 64]


@pytest.mark.parametrize("rate_per_s", [1, 2.5, 7, 50, 300])
@pytest.mark.parametrize("max_in_flight", [1, 64])
def test_the_rate_holds_within_5_percent_over_30_s(rate_per_s: float, max_in_flight: int) -> None:
    gate, now_s, started = Gate(max_in_flight, rate_per_s), 0.0, 0
    while now_s < 30:
        wait_s = gate.next_change_s(now_s)
        assert wait_s is not None
        now_s += wait_s + 1e-4
        granted = gate.free(now_s)
        gate.take(granted, now_s)
        for _ in range(granted):
            gate.finish("success", now_s, 0.0)
        started += granted
    assert started == pytest.approx(30 * rate_per_s, rel=0.05)


@pytest.mark.parametrize("replicas", [1, 2, 5])
def test_so_many_replicas_allow_so_many_times_the_rate_because_each_has_a_gate_of_its_own(replicas: int) -> None:
    rate_per_s, seconds = 10, 30
    gates, started = [Gate(64, rate_per_s) for _ in range(replicas)], 0
    for tick in range(100 * seconds + 1):
        for gate in gates:
            granted = gate.free(tick / 100)
            gate.take(granted, tick / 100)
            for _ in range(granted):
                gate.finish("success", tick / 100, 0.0)
            started += granted
    # And each may start with a burst of one second's worth.
    assert started == replicas * rate_per_s * (seconds + 1)


def test_a_burst_is_one_seconds_worth_and_never_more_than_may_be_in_flight() -> None:
    assert Gate(64, 10).free(0) == 10
    assert Gate(64, 0.1).free(0) == 1
    assert Gate(64, 1000).free(0) == 64
    gate = Gate(64, 10)
    gate.take(10, 0)
    for _ in range(10):
        gate.finish("success", 0, 0.0)
    assert (gate.free(0), gate.free(0.5), gate.free(1e6)) == (0, 5, 10)


def test_jobs_given_back_unsent_return_their_tokens() -> None:
    gate = Gate(64, 10)
    gate.take(10, 0)
    gate.give_back(4)
    assert (gate.free(0), gate.in_flight) == (4, 6)


def test_chained_jobs_beyond_the_rate_are_paid_back_before_the_next_grant() -> None:
    gate = Gate(64, 10)
    gate.take(10, 0)
    for _ in range(5):
        gate.finish("success", 0, 0.0)
        gate.take(1, 0)
    assert gate.free(0.5) == 0
    assert gate.next_change_s(0.5) == pytest.approx(0.1, rel=1e-3)


def test_a_wide_open_gate_is_as_wide_as_its_new_limit() -> None:
    gate = Gate(4)
    gate.take(3, 0)
    gate.configure(9, None, 60.0, 0)
    assert gate.free(0) == 6
    gate.configure(2, None, 60.0, 0)
    assert (gate.free(0), gate.next_change_s(0)) == (0, None)
    for _ in range(2):
        gate.finish("success", 0, 0.0)
    assert gate.free(0) == 1


def test_other_limits_neither_close_an_open_gate_nor_widen_the_window_of_one_that_recovers() -> None:
    gate = opened()
    gate.configure(9, None, 60.0, 0)
    assert (gate.state(0.5), gate.free(0.5)) == ("open", 0)
    attempt(gate, "success", FIRST_OPEN_S)
    gate.configure(30, None, 60.0, FIRST_OPEN_S)
    assert gate.free(FIRST_OPEN_S) == 2


def test_a_new_rate_grants_no_more_than_the_tokens_that_are_left() -> None:
    gate = Gate(64, 10)
    gate.take(9, 0)
    gate.configure(64, 20, 60.0, 0)
    assert gate.free(0) == 1
    assert gate.free(0.5) == 11
    gate.configure(64, 5, 60.0, 0.5)
    assert gate.free(0.5) == 5


@pytest.mark.parametrize("status", [200, 204, 301, 400, 401, 404, 408, 409, 410, 422, 425])
def test_an_answer_below_500_tells_that_the_receiver_is_there(status: int) -> None:
    assert signal(Answer(status, {}, b"")) == "success"


@pytest.mark.parametrize("status", [101, 429, 500, 502, 503, 504, 599, 999])
def test_429_5xx_and_no_proper_answer_count_against_the_destination(status: int) -> None:
    assert signal(Answer(status, {}, b"")) == "failure"


@pytest.mark.parametrize("error_class", list(ErrorClass))
def test_every_fault_counts_against_the_destination_except_our_own(error_class: ErrorClass) -> None:
    ours = error_class in {ErrorClass.INTERNAL, ErrorClass.LEASE_EXPIRED}
    assert signal(Fault(error_class, "")) == ("neutral" if ours else "failure")


class AnyHistory(RuleBasedStateMachine):
    """Whatever is called in whatever order, the counts hold and only the table's grants are made."""

    @initialize(max_in_flight=st.integers(1, 40), rate_per_s=st.none() | st.floats(0.01, 1000))
    def start(self, max_in_flight: int, rate_per_s: float | None) -> None:
        self.max_in_flight = max_in_flight
        self.rate_per_s = rate_per_s
        self.gate = Gate(max_in_flight, rate_per_s)
        self.now_s = 1e5
        self.in_flight = {False: 0, True: 0}

    @rule(seconds=st.floats(0, 100))
    def time_passes(self, seconds: float) -> None:
        self.now_s += seconds

    @rule()
    def wait_as_told(self) -> None:
        wait_s = self.gate.next_change_s(self.now_s)
        if wait_s is None:
            self.now_s += 1e6
            assert self.gate.free(self.now_s) == 0
            return
        assert wait_s >= 0
        if wait_s > 1e-6:
            assert self.gate.free(self.now_s) == 0
        self.now_s += wait_s + 1e-6
        if not any(self.in_flight.values()):
            assert self.gate.free(self.now_s) > 0
            assert self.gate.free_for_retries(self.now_s) > 0

    @rule(part=st.floats(0, 1), retry=st.booleans())
    def claim(self, part: float, *, retry: bool) -> None:
        free = self.gate.free_for_retries(self.now_s) if retry else self.gate.free(self.now_s)
        n = math.ceil(free * part)
        self.gate.take(n, self.now_s, retry=retry)
        self.in_flight[retry] += n

    @rule(n=st.integers(-2, 50), retry=st.booleans())
    def claim_without_asking(self, n: int, *, retry: bool) -> None:
        if 0 <= n <= self.max_in_flight - sum(self.in_flight.values()):
            self.gate.take(n, self.now_s, retry=retry)
            self.in_flight[retry] += n
        else:
            with pytest.raises(ValueError, match="cannot take"):
                self.gate.take(n, self.now_s, retry=retry)

    @rule(n=st.integers(-2, 50), retry=st.booleans())
    def release(self, n: int, *, retry: bool) -> None:
        if 0 <= n <= self.in_flight[retry]:
            self.gate.give_back(n, retry=retry)
            self.in_flight[retry] -= n
        else:
            with pytest.raises(ValueError, match="cannot free"):
                self.gate.give_back(n, retry=retry)

    @precondition(lambda self: any(self.in_flight.values()))
    @rule(
        retry=st.booleans(),
        outcome=st.sampled_from(["success", "failure", "neutral"]),
        rng=st.floats(0, 1, exclude_max=True),
        hint_s=st.none() | st.floats(0, 1e12),
        times=st.integers(1, 40),
    )
    def attempts_end(self, outcome: Signal, rng: float, hint_s: float | None, times: int, *, retry: bool) -> None:
        for _ in range(min(times, self.in_flight[retry])):
            self.gate.finish(outcome, self.now_s, rng, hint_s, retry=retry)
            self.in_flight[retry] -= 1

    @rule()
    def pause(self) -> None:
        self.gate.pause()

    @rule()
    def resume(self) -> None:
        self.gate.resume()

    @invariant()
    def counts_hold(self) -> None:
        assert 0 <= self.gate.in_flight == sum(self.in_flight.values()) <= self.max_in_flight

    @invariant()
    def only_the_states_grants_are_made(self) -> None:
        free, state = self.gate.free(self.now_s), self.gate.state(self.now_s)
        in_flight = sum(self.in_flight.values())
        assert 0 <= free <= self.max_in_flight - in_flight
        if state in {"open", "held", "paused"}:
            assert free == 0
        if state == "half_open":
            assert free + in_flight <= max(1, in_flight)
        if self.rate_per_s is not None:
            assert free <= max(1, self.rate_per_s) + 1e-6

    @invariant()
    def retries_leave_room_for_first_attempts(self) -> None:
        free, retries = self.gate.free(self.now_s), self.gate.free_for_retries(self.now_s)
        assert 0 <= retries <= free
        if retries and self.max_in_flight > 1:
            assert self.in_flight[True] + retries < max(2, self.max_in_flight)

    @invariant()
    def no_wait_is_longer_than_the_longest(self) -> None:
        wait_s = self.gate.next_change_s(self.now_s)
        rate = self.rate_per_s or math.inf
        assert wait_s is None or 0 <= wait_s <= 1e-6 + max(
            86_400, 1.25 * LONGEST_OPEN_S, 200 * self.max_in_flight / rate
        )


AnyHistory.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestAnyHistory = AnyHistory.TestCase
