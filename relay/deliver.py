"""One attempt: build the request, send it, read the answer, decide what becomes of the job."""

import logging
import random
import time
from collections.abc import Awaitable, Callable

from relay.model import Answer, Destination, Ended, ErrorClass, Fault, Job
from relay.rules.classify import asked_wait_s
from relay.rules.decide import decide
from relay.rules.gate import signal
from relay.rules.request import headers
from relay.telemetry import event

# After a 410 the database says when this destination goes on; until then each claim finds nothing for it.
_GONE_HOLD_S = 1.0

Send = Callable[[Destination, list[tuple[str, str]], bytes], Awaitable[Answer | Fault]]


class Deliverer:
    """Turns a job into an ended attempt. Whatever a receiver does is a value; only cancellation is raised."""

    def __init__(self, send: Send, rng: random.Random) -> None:
        self._send = send
        self._rng = rng

    async def deliver(self, job: Job, destination: Destination) -> Ended:
        """Sends `job` once, within the destination's deadline."""
        started_s = time.monotonic()
        # The one use of the wall clock: a signature carries the time of its attempt.
        now_epoch_s = time.time()
        try:
            result = await self._send(destination, headers(job, destination, int(now_epoch_s)), job.body)
        except Exception as bug:  # noqa: BLE001 - a fault of ours costs this attempt, not the replica
            event(logging.ERROR, "attempt_crashed", job=job.id, destination=destination.name, fault=bug)
            result = Fault(ErrorClass.INTERNAL, f"{type(bug).__name__} in the relay; its log has the traceback")
        settlement = decide(
            job,
            result,
            destination,
            duration_s=time.monotonic() - started_s,
            rng=self._rng.random(),
            now_epoch_s=now_epoch_s,
        )
        if settlement.pauses:
            return Ended(settlement, "failure", _GONE_HOLD_S)
        return Ended(settlement, signal(result), asked_wait_s(result, now_epoch_s))
