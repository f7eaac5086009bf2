"""Writes settlements in batches, and hands on what the same transaction started."""

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from relay.database import CONFLICTS
from relay.model import Settlement
from relay.rows import Settled
from relay.store import Store
from relay.telemetry import event

_BATCH = 500
_POSTPONED_S = 0.5


class Settler:
    """A queue of settlements. One flush runs at a time; what ends meanwhile makes the next batch.

    `on_settled` gets each batch once it is committed, with the monotonic time at which it was sent.
    """

    def __init__(
        self,
        store: Store,
        *,
        on_settled: Callable[[Sequence[Settlement], Settled, float], None],
        wake: Callable[[], None],
    ) -> None:
        self._store = store
        self._on_settled = on_settled
        self._wake = wake
        self._queue: deque[Settlement] = deque()
        self._postponed: deque[tuple[float, Settlement]] = deque()
        self._writing = False

    def put(self, settlement: Settlement) -> None:
        """Takes a settlement; it is written at once, or with the batch after the one being written."""
        self._queue.append(settlement)
        self._wake()

    @property
    def empty(self) -> bool:
        """Whether everything that was put is written."""
        return not (self._queue or self._postponed or self._writing)

    async def step(self) -> float:
        """Writes one batch; seconds until there may be another one."""
        batch, patient = self._next()
        self._writing = bool(batch)
        pieces = [batch] if batch else []
        try:
            while pieces:
                sent_s = time.monotonic()
                try:
                    settled = await self._store.settle(pieces[-1], patient=patient)
                except CONFLICTS as conflict:
                    # One row that somebody else holds must not keep the other results from being written.
                    patient = False
                    pieces += self._divide(pieces.pop(), conflict)
                else:
                    written = pieces.pop()
                    _tell(written, settled)
                    self._on_settled(written, settled, sent_s)
        finally:
            # Not empty when the database is away. What it may have written already does not match again.
            self._queue.extendleft(settlement for piece in pieces for settlement in reversed(piece))
            self._writing = False
        if self._queue:
            return 0.0
        return max(0.0, self._postponed[0][0] - time.monotonic()) if self._postponed else float("inf")

    def _next(self) -> tuple[list[Settlement], bool]:
        """The next batch, and whether it may wait for a row that is locked."""
        # What somebody held is tried by itself, so that it holds up no other result again.
        if self._postponed and self._postponed[0][0] <= time.monotonic():
            return [self._postponed.popleft()[1]], False
        return [self._queue.popleft() for _ in range(min(_BATCH, len(self._queue)))], True

    def _divide(self, batch: list[Settlement], conflict: Exception) -> list[list[Settlement]]:
        if len(batch) == 1:
            event(logging.WARNING, "settle_postponed", job=batch[0].job.id, why=type(conflict).__name__)
            # Without the chain: a lane that could not be continued here is left to the next claim.
            self._postponed.append((time.monotonic() + _POSTPONED_S, replace(batch[0], chain=False)))
            return []
        middle = len(batch) // 2
        return [batch[middle:], batch[:middle]]


def _tell(batch: Sequence[Settlement], settled: Settled) -> None:
    """Logs what somebody should know of: what was not ours any more, what died, what was paused."""
    for settlement in batch:
        job = settlement.job
        trace_id = settlement.failure.trace_id if settlement.failure else None
        about: dict[str, Any] = {"job": job.id, "destination": job.destination, "trace_id": trace_id}
        why = settlement.failure.detail if settlement.failure else ""
        if (job.id, job.claims) not in settled.tokens:
            event(logging.WARNING, "lease_lost", **about, claims=job.claims, noticed_by="settle")
        elif settlement.pauses:
            event(logging.WARNING, "destination_paused", **about, why=why)
        elif settlement.status == "dead":
            event(logging.WARNING, "job_dead", **about, attempts=job.attempts, why=why)
