"""What waits for a slot of one destination, and how much more to claim so that no slot is empty meanwhile."""

import asyncio
import logging
import math
import time
from collections import deque

from relay.model import Destination, Ended, Job
from relay.rules.gate import Gate
from relay.telemetry import event

# What the slots finish in this time is claimed ahead, so that none is empty while a claim is under way.
_AHEAD_S = 0.05


class Line:
    """One destination: its gate, what is claimed and waits for a slot, and how fast slots become free."""

    def __init__(self, destination: Destination) -> None:
        self.destination = destination
        self.gate = Gate(destination.max_in_flight, destination.rate_per_s, destination.retry.retry_after_cap_s)
        self.waiting: deque[Job] = deque()
        self.waiting_retries = 0
        self.more = self.more_retries = False
        self.bytes_held = 0
        self.timer: asyncio.TimerHandle | None = None
        # Whether it was said that this destination fails, and not yet that it answers again.
        self._broken = False
        self._finished = 0
        self._counted_s = time.monotonic()
        self._pace_per_s = 0.0

    def configure(self, destination: Destination) -> None:
        """Goes on with another value of the same destination; its gate stays in its state."""
        self.destination = destination
        self.gate.configure(
            destination.max_in_flight, destination.rate_per_s, destination.retry.retry_after_cap_s, time.monotonic()
        )

    def rest(self) -> None:
        """Waits for nothing any more."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def next(self, now_s: float) -> Job | None:
        """Takes the first job that waits and has a slot: retries let others pass while they hold all they may."""
        if not self.waiting or self.gate.free(now_s) <= 0:
            return None
        if not self.waiting[0].is_retry or self.gate.free_for_retries(now_s) > 0:
            return self.first()
        for place, job in enumerate(self.waiting):
            if not job.is_retry:
                del self.waiting[place]
                return job
        return None

    def put(self, job: Job) -> None:
        """Lets a job wait behind the others."""
        self.waiting.append(job)
        self.waiting_retries += job.is_retry

    def first(self) -> Job:
        """Takes the job that has waited longest."""
        job = self.waiting.popleft()
        self.waiting_retries -= job.is_retry
        return job

    def queued(self, now_s: float) -> int:
        """How many jobs wait for a slot that they may have: retries beyond theirs keep no others from one."""
        if not self.waiting_retries:
            return len(self.waiting)
        return len(self.waiting) - max(0, self.waiting_retries - self.gate.free_for_retries(now_s))

    def is_low(self, now_s: float) -> bool:
        """Whether more is to be claimed: more is due, and half of what was claimed ahead has been started."""
        if not (self.more or self.more_retries):
            return False
        enough = self.ahead(now_s) // 2
        return (self.more and self.queued(now_s) <= enough) or (self.more_retries and len(self.waiting) <= enough)

    def finished(self, ended: Ended, now_s: float) -> None:
        """Counts an attempt that the gate knows of; logs once that only probes are sent, and once that it is over."""
        self._finished += 1
        state = self.gate.state(now_s)
        if state == "open" and not self._broken:
            self._broken = True
            failure = ended.settlement.failure
            why, trace_id = (failure.detail, failure.trace_id) if failure else (None, None)
            event(logging.WARNING, "breaker_opened", destination=self.destination.name, trace_id=trace_id, why=why)
        elif state == "closed" and self._broken:
            self._broken = False
            event(logging.INFO, "breaker_closed", destination=self.destination.name)

    def ahead(self, now_s: float) -> int:
        """How many jobs to have claimed beyond the free slots."""
        if self.destination.rate_per_s is not None or self.gate.state(now_s) != "closed":
            return 0
        if now_s - self._counted_s > _AHEAD_S:
            self._pace_per_s = (self._pace_per_s + self._finished / (now_s - self._counted_s)) / 2
            self._finished, self._counted_s = 0, now_s
        return min(self.destination.max_in_flight, math.ceil(self._pace_per_s * _AHEAD_S))
