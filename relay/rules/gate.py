"""One gate per destination and replica: the only thing that says how many jobs may be started now.

Everything that holds a destination back lives in this one table, so that its reasons cannot contradict each
other. A job that is not started loses no attempt.

| state     | grants                                   | left when                                          |
|-----------|------------------------------------------|----------------------------------------------------|
| closed    | the window, less what is in flight;      | 10 failures in a row: open; Retry-After: held      |
|           | retries hold at most 3/4 of the window   |                                                    |
| open      | nothing                                  | after 1 s, 2 s, 4 s … 60 s (+0–25 %): half_open    |
| held      | nothing                                  | after the Retry-After: half_open                   |
| half_open | one probe, once nothing is in flight     | success: closed, with a window of 2;               |
|           |                                          | failure: open, twice as long; neutral: probe again |
| paused    | nothing                                  | `resume`: half_open                                |

The window grows by one with every success, so a receiver that comes back meets 1, 2, 4, 8 … requests at once,
until it is `max_in_flight`; only then is the length of the last open time forgotten. What ends while the gate is
not closed and is not the probe was sent before the trouble was known, so it moves nothing, except that a later
Retry-After extends the wait. In every state the rate limit applies on top. The gate is per replica: n replicas
allow n times `max_in_flight` and `rate_per_s`.

Retries, jobs that were tried before, hold at most three quarters of the window, rounded down, but one where it
is one; the other slots wait for first attempts. So what a receiver keeps refusing, however much of it is due and
however long it takes, leaves room for what is new. Rate tokens and a window of one are not kept apart: there
the claims let the two kinds go first in turn (`relay/claim.py`).
"""

import math
from typing import Literal

from relay.model import Answer, ErrorClass, Result

Signal = Literal["success", "failure", "neutral"]
State = Literal["closed", "open", "held", "half_open", "paused"]

FAILURES_TO_OPEN = 10
FIRST_OPEN_S = 1.0
LONGEST_OPEN_S = 60.0
OPEN_JITTER = 0.25
RETRIES_SHARE = 0.75

_ROUNDING = 1e-6  # a fraction of a token; without it a wait computed to the last bit can end just short


def signal(result: Result) -> Signal:
    """What an attempt tells about its destination as a whole.

    Failure: no usable answer, 5xx, 429, or a status that is no answer to a POST. Any other answer is a
    success here, 4xx included: the receiver is there, and refuses this job. Neutral: the fault is ours.
    """
    if isinstance(result, Answer):
        answers = 200 <= result.status <= 499 and result.status != 429
        return "success" if answers else "failure"
    ours = result.error_class in {ErrorClass.INTERNAL, ErrorClass.LEASE_EXPIRED}
    return "neutral" if ours else "failure"


class Gate:
    """Not thread-safe. `now_s` is any monotonic clock in seconds; calls pass it in non-decreasing order."""

    def __init__(self, max_in_flight: int, rate_per_s: float | None = None, hold_cap_s: float = 86_400.0) -> None:
        """`rate_per_s` allows bursts of one second's worth, at least 1 and at most `max_in_flight`.

        `hold_cap_s` bounds what a Retry-After can ask for.
        """
        self.in_flight = 0
        self._retries = 0
        self._limit(max_in_flight, rate_per_s, hold_cap_s)
        self._tokens = self._burst
        self._refilled_s = -math.inf
        self._paused = False
        self._closed = True
        self._window = max_in_flight
        self._failures = 0
        self._open_s = 0.0
        self._until_s = -math.inf
        self._waiting: Literal["open", "held"] = "open"
        self._probing = False

    def configure(self, max_in_flight: int, rate_per_s: float | None, hold_cap_s: float, now_s: float) -> None:
        """Go on with other limits in the same state; what is in flight beyond them ends first."""
        self._refill(now_s)
        # A window that was open as far as it goes is open as far as it goes now.
        wide = self._window == self._max_in_flight
        self._limit(max_in_flight, rate_per_s, hold_cap_s)
        self._tokens = min(self._tokens, self._burst)
        self._window = max_in_flight if wide else min(self._window, max_in_flight)

    def _limit(self, max_in_flight: int, rate_per_s: float | None, hold_cap_s: float) -> None:
        self._max_in_flight = max_in_flight
        self._hold_cap_s = hold_cap_s
        self._rate_per_s = math.inf if rate_per_s is None else rate_per_s
        self._burst = min(max(1.0, self._rate_per_s), float(max_in_flight))

    def state(self, now_s: float) -> State:
        """The row of the table above."""
        return "paused" if self._paused else self._breaker(now_s)

    def free(self, now_s: float) -> int:
        """How many more jobs may be claimed now."""
        slots = self._slots(now_s)
        if slots <= 0:
            return 0
        # Asked several times a delivery; without a rate there are always tokens for what has slots.
        return slots if self._rate_per_s == math.inf else max(0, min(slots, int(self._refill(now_s) + _ROUNDING)))

    def free_for_retries(self, now_s: float) -> int:
        """How many of these may be retries."""
        most = max(1, int(RETRIES_SHARE * self._window))
        return max(0, min(self.free(now_s), most - self._retries))

    def next_change_s(self, now_s: float) -> float | None:
        """Seconds until `free` may turn positive by time alone, 0 if it is; None if it takes an event."""
        waits = not self._closed and self.state(now_s) in {"open", "held"}
        if not waits and self._slots(now_s) <= 0:
            return None
        token_s = (1.0 - _ROUNDING - self._refill(now_s)) / self._rate_per_s
        return max(0.0, token_s, self._until_s - now_s if waits else 0.0)

    def take(self, n: int, now_s: float, *, retry: bool = False) -> None:
        """Count `n` claimed jobs, all of them retries or none: a slot and a rate token each.

        More than `free` said a moment ago is accepted, since a claim may return after the gate has changed;
        tokens go into debt then. Raises ValueError, and takes nothing, beyond `max_in_flight`.
        """
        if not 0 <= n <= self._max_in_flight - self.in_flight:
            raise ValueError(f"cannot take {n} slots: {self.in_flight} of {self._max_in_flight} are in flight")
        self._tokens = self._refill(now_s) - n
        if n and self.in_flight == 0 and self._breaker(now_s) == "half_open":
            self._probing = True
        self.in_flight += n
        self._retries += n * retry

    def give_back(self, n: int, *, retry: bool = False) -> None:
        """Return the slots and tokens of `n` jobs that were claimed and released without being sent."""
        self._leave(n, retry=retry)
        self._tokens = min(self._burst, self._tokens + n)

    def finish(
        self, outcome: Signal, now_s: float, rng: float, hint_s: float | None = None, *, retry: bool = False
    ) -> None:
        """One attempt has ended. `hint_s` is its Retry-After in seconds, which counts with a failure only.

        `rng` (0 <= rng < 1) feeds the jitter of the open time.
        """
        self._leave(1, retry=retry)
        probe, self._probing = self._probing, False
        if outcome == "success" and (self._closed or probe):
            self._succeeded()
        elif outcome == "failure":
            self._failed(now_s, rng, probe=probe)
            self._hold(now_s, min(hint_s or 0.0, self._hold_cap_s))

    def pause(self) -> None:
        """Grant nothing until `resume`."""
        self._paused = True

    def resume(self) -> None:
        """End a pause, and probe at once whatever the gate waited for before; without a pause, nothing."""
        if self._paused:
            self._paused = False
            self._closed = False
            self._until_s = -math.inf

    def _breaker(self, now_s: float) -> Literal["closed", "open", "held", "half_open"]:
        if self._closed:
            return "closed"
        return self._waiting if now_s < self._until_s else "half_open"

    def _slots(self, now_s: float) -> int:
        if self._closed and not self._paused:
            return self._window - self.in_flight
        return 1 if self.state(now_s) == "half_open" and self.in_flight == 0 else 0

    def _refill(self, now_s: float) -> float:
        if self._rate_per_s == math.inf:
            self._tokens = self._burst
        elif now_s > self._refilled_s:
            since_s = now_s - self._refilled_s  # infinite the first time, which fills the bucket
            self._tokens = min(self._burst, self._tokens + since_s * self._rate_per_s)
            self._refilled_s = now_s
        return self._tokens

    def _leave(self, n: int, *, retry: bool) -> None:
        held = self._retries if retry else self.in_flight - self._retries
        if not 0 <= n <= held:
            kind = "retries" if retry else "first attempts"
            raise ValueError(f"cannot free {n} slots: {held} {kind} are in flight")
        self.in_flight -= n
        self._retries -= n * retry

    def _succeeded(self) -> None:
        self._failures = 0
        self._window = min(self._max_in_flight, self._window + 1 if self._closed else 2)
        self._closed = True
        if self._window == self._max_in_flight:
            self._open_s = 0.0

    def _failed(self, now_s: float, rng: float, *, probe: bool) -> None:
        self._failures += 1
        if probe or (self._closed and self._failures >= FAILURES_TO_OPEN):
            self._open_s = min(LONGEST_OPEN_S, max(FIRST_OPEN_S, 2 * self._open_s))
            self._closed = False
            self._waiting = "open"
            self._until_s = now_s + self._open_s * (1.0 + OPEN_JITTER * rng)

    def _hold(self, now_s: float, hint_s: float) -> None:
        if hint_s > 0.0 and (self._closed or now_s + hint_s > self._until_s):
            self._closed = False
            self._waiting = "held"
            self._until_s = now_s + hint_s
