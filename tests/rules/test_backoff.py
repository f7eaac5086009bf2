import math

from hypothesis import given
from hypothesis import strategies as st

from relay.model import RetryPolicy
from relay.rules.backoff import delay_s

attempts = st.one_of(st.integers(1, 40), st.integers(1, 10**9), st.just(10**400))
rngs = st.floats(0, 1, exclude_max=True)
hints = st.none() | st.floats(0, 1e300)
policies = st.builds(
    RetryPolicy,
    base_s=st.floats(0, 1e6),
    factor=st.floats(1, 100),
    cap_s=st.floats(0, 1e6),
    jitter=st.floats(0, 1),
    retry_after_cap_s=st.floats(0, 1e6),
)


def test_the_default_schedule_is_5_s_times_4_up_to_6_h_and_lasts_about_32_hours() -> None:
    waits = [delay_s(RetryPolicy(), attempt, 0.0) for attempt in range(1, 12)]
    assert waits[:7] == [5, 20, 80, 320, 1280, 5120, 20480]
    assert set(waits[7:]) == {21600}
    assert 31 < sum(waits) / 3600 < 33


@given(policies, attempts, rngs, hints)
def test_a_delay_is_finite_and_at_most_the_larger_cap_plus_jitter(
    policy: RetryPolicy, attempt: int, rng: float, hint_s: float | None
) -> None:
    wait = delay_s(policy, attempt, rng, hint_s)
    assert math.isfinite(wait)
    assert 0 <= wait <= max(policy.cap_s, policy.retry_after_cap_s) * (1 + policy.jitter)


@given(policies, attempts, attempts, hints)
def test_a_later_attempt_never_waits_less(policy: RetryPolicy, one: int, other: int, hint_s: float | None) -> None:
    earlier, later = sorted((one, other))
    assert delay_s(policy, earlier, 0.0, hint_s) <= delay_s(policy, later, 0.0, hint_s)


@given(policies, attempts, rngs, hints)
def test_jitter_only_lengthens_a_delay(policy: RetryPolicy, attempt: int, rng: float, hint_s: float | None) -> None:
    assert delay_s(policy, attempt, rng, hint_s) >= delay_s(policy, attempt, 0.0, hint_s)


@given(policies, attempts, rngs, st.floats(0, 1e300))
def test_a_delay_is_never_below_the_capped_hint(policy: RetryPolicy, attempt: int, rng: float, hint_s: float) -> None:
    assert delay_s(policy, attempt, rng, hint_s) >= min(hint_s, policy.retry_after_cap_s)


@given(policies, attempts, rngs, hints)
def test_a_hint_never_shortens_the_schedule(
    policy: RetryPolicy, attempt: int, rng: float, hint_s: float | None
) -> None:
    assert delay_s(policy, attempt, rng, hint_s) >= delay_s(policy, attempt, rng)


def test_two_draws_of_the_jitter_part_jobs_that_failed_together() -> None:
    assert delay_s(RetryPolicy(), 1, 0.0) == 5.0
    assert delay_s(RetryPolicy(), 1, 0.5) == 5.625


def test_the_billionth_attempt_waits_as_long_as_the_cap() -> None:
    assert delay_s(RetryPolicy(), 10**9, 0.0) == 21_600
