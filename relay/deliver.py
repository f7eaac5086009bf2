"""One attempt: build the request, send it, read the answer, decide what becomes of the job."""

import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from relay.model import Destination, Ended, ErrorClass, Fault, Job, Result, Settlement
from relay.rules.classify import asked_wait_s
from relay.rules.decide import decide
from relay.rules.gate import signal
from relay.rules.request import headers
from relay.telemetry import event

if TYPE_CHECKING:
    from relay.telemetry.traces import Attempt, Traces  # imported where spans are made; see relay.telemetry.otlp

# After a 410 the database says when this destination goes on; until then each claim finds nothing for it.
_GONE_HOLD_S = 1.0

Send = Callable[[Destination, list[tuple[str, str]], bytes], Awaitable[Result]]


class Deliverer:
    """Turns a job into an ended attempt. Whatever a receiver does is a value; only cancellation is raised.

    With `traces` each attempt has a span, whose context goes to the receiver in the place of the producer's.
    """

    def __init__(self, send: Send, rng: random.Random, traces: "Traces | None" = None) -> None:
        self._send = send
        self._rng = rng
        self._traces = traces

    async def deliver(self, job: Job, destination: Destination) -> Ended:
        """Sends `job` once, within the destination's deadline."""
        if self._traces is None:
            return await self._attempt(job, destination, None)
        with self._traces.attempt(job, destination) as attempt:
            return await self._attempt(job, destination, attempt)

    async def _attempt(self, job: Job, destination: Destination, attempt: "Attempt | None") -> Ended:
        started_s = time.monotonic()
        # The one use of the wall clock: a signature carries the time of its attempt.
        now_epoch_s = time.time()
        try:
            sent = headers(job, destination, int(now_epoch_s), attempt.traceparent if attempt else None)
            result = await self._send(destination, sent, job.body)
        except Exception as bug:  # noqa: BLE001 - a fault of ours costs this attempt, not the replica
            trace_id = attempt.trace_id if attempt else None
            event(
                logging.ERROR,
                "attempt_crashed",
                job=job.id,
                destination=destination.name,
                trace_id=trace_id,
                fault=bug,
            )
            result = Fault(ErrorClass.INTERNAL, f"{type(bug).__name__} in the relay; its log has the traceback")
        settlement = decide(
            job,
            result,
            destination,
            duration_s=time.monotonic() - started_s,
            rng=self._rng.random(),
            now_epoch_s=now_epoch_s,
        )
        if attempt is not None:
            settlement = _traced(attempt, result, settlement)
        if settlement.pauses:
            return Ended(settlement, "failure", _GONE_HOLD_S)
        return Ended(settlement, signal(result), asked_wait_s(result, now_epoch_s))


def _traced(attempt: "Attempt", result: Result, settlement: Settlement) -> Settlement:
    """Tells the span how the attempt ended, and a failure which trace shows it."""
    attempt.tell(result, settlement)
    if settlement.failure is None:
        return settlement
    return replace(settlement, failure=replace(settlement.failure, trace_id=attempt.trace_id))
