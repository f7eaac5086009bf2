"""Writes settlements in batches, and hands on what the same transaction started."""

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

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
        self._postponed: list[tuple[float, Settlement]] = []
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
        now_s = time.monotonic()
        self._queue.extend(settlement for due_s, settlement in self._postponed if due_s <= now_s)
        self._postponed = [(due_s, settlement) for due_s, settlement in self._postponed if due_s > now_s]
        if self._queue:
            batch = [self._queue.popleft() for _ in range(min(_BATCH, len(self._queue)))]
            self._writing = True
            try:
                await self._flush(batch)
            except BaseException:
                # The database is away. What it may have written already does not match again.
                self._queue.extendleft(reversed(batch))
                raise
            finally:
                self._writing = False
        if self._queue:
            return 0.0
        return min((due_s - now_s for due_s, _ in self._postponed), default=float("inf"))

    async def _flush(self, batch: list[Settlement]) -> None:
        sent_s = time.monotonic()
        try:
            settled = await self._store.settle(batch)
        except CONFLICTS as conflict:
            await self._divide(batch, conflict)
        else:
            self._on_settled(batch, settled, sent_s)

    async def _divide(self, batch: list[Settlement], conflict: Exception) -> None:
        """One row that somebody else holds must not keep the other results from being written."""
        if len(batch) == 1:
            event(logging.WARNING, "settle_postponed", job=batch[0].job.id, why=type(conflict).__name__)
            # Without the chain: a lane that could not be continued here is left to the next claim.
            self._postponed.append((time.monotonic() + _POSTPONED_S, replace(batch[0], chain=False)))
            return
        middle = len(batch) // 2
        await self._flush(batch[:middle])
        await self._flush(batch[middle:])
