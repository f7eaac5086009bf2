"""What becomes of a job after one attempt. With `classify` and the SQL of settle, this is the promise:

| outcome                     | the job becomes                                                        |
|-----------------------------|------------------------------------------------------------------------|
| Delivered                   | done                                                                   |
| Failed, attempts left       | pending, due after the backoff                                         |
| Failed, that was the last   | dead                                                                   |
| Refused                     | dead at once                                                           |
| Gone                        | pending, the attempt given back, and its destination paused            |

A dead job keeps holding its lane where the destination's policy is `block`. No outcome loses a job.
"""

from typing import assert_never

from relay.model import (
    Answer,
    Delivered,
    Destination,
    ErrorClass,
    Failed,
    Failure,
    Gone,
    Job,
    Refused,
    Result,
    Settlement,
)
from relay.rules.backoff import delay_s
from relay.rules.classify import classify

# Of a word in a header's value from where on it may be one; what is shorter is text.
_CREDENTIAL_LENGTH = 12


def decide(
    job: Job, result: Result, destination: Destination, *, duration_s: float, rng: float, now_epoch_s: float
) -> Settlement:
    """The settlement of an attempt that ended with `result` after `duration_s` seconds.

    `job.attempts` counts this attempt; its budget is the row's own `max_attempts`, else the destination's.
    `rng` (0 <= rng < 1) feeds the jitter; `now_epoch_s` is read only for a Retry-After date.
    """

    def failure(error_class: ErrorClass, detail: str) -> Failure:
        if isinstance(result, Answer):
            return Failure(error_class, detail, duration_s, result.status, _evidence(result.body, destination))
        return Failure(error_class, detail, duration_s)

    retry = destination.retry
    budget = retry.max_attempts if job.max_attempts is None else job.max_attempts
    holds_lane = destination.on_dead == "block" and job.entity_key is not None

    match classify(result, destination.permanent_statuses, now_epoch_s):
        case Delivered():
            return Settlement(job, "done", duration_s=duration_s)
        case Failed(error_class, detail, hint_s) if job.attempts < budget:
            wait_s = delay_s(retry, job.attempts, rng, hint_s)
            return Settlement(
                job, "pending", delay_s=wait_s, failure=failure(error_class, detail), duration_s=duration_s
            )
        case Failed(error_class, detail) | Refused(error_class, detail):
            return Settlement(
                job, "dead", holds_lane=holds_lane, failure=failure(error_class, detail), duration_s=duration_s
            )
        case Gone(detail):
            return Settlement(
                job,
                "pending",
                delay_s=delay_s(retry, 1, rng),
                charged=False,
                pauses=True,
                failure=failure(ErrorClass.STATUS, detail),
                duration_s=duration_s,
            )
        case impossible:
            assert_never(impossible)


def _evidence(body: bytes, destination: Destination) -> bytes:
    """What is kept of an answer's body: as it came, but for our credentials, which some receivers say back."""
    for _, value in destination.headers:
        for word in value.split():
            if len(word) >= _CREDENTIAL_LENGTH:
                body = body.replace(word.encode(), b"[withheld]")
    return body
