"""How long a failed job waits before its next attempt."""

import math

from relay.model import RetryPolicy


def delay_s(policy: RetryPolicy, attempt: int, rng: float, hint_s: float | None = None) -> float:
    """Seconds from the end of attempt number `attempt` (1 is the first) to the next one.

    The schedule is `base_s * factor ** (attempt - 1)`, at most `cap_s`. `hint_s` is what the receiver asked
    for, at most `retry_after_cap_s`; the later of the two counts. Jitter then only lengthens the wait, by
    `rng` (0 <= rng < 1) times the fraction `jitter`: a receiver that said "not before" is never called
    before, and replicas that failed together do not come back together. Finite for every attempt number.
    """
    try:
        growth = policy.factor ** (max(attempt, 1) - 1)
    except OverflowError:
        growth = math.inf
    scheduled_s = min(policy.base_s * growth, policy.cap_s) if policy.base_s else 0.0
    asked_s = min(hint_s or 0.0, policy.retry_after_cap_s)
    return max(scheduled_s, asked_s) * (1.0 + policy.jitter * rng)
