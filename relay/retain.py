"""Deletes what is past its age, in bounded batches that wait for nobody. Any replica may do it for all of them."""

import logging
import random
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Protocol

from relay.rows import Deleted
from relay.store import Store
from relay.telemetry import event

_NEXT_BATCH_S = 0.2
_DEAD_AT_ONCE = 100
# How often a batch begins with the oldest row again: one that was locked, or committed late, was passed by.
_FULL_LOOK_S = 600.0


class _Delete(Protocol):
    def __call__(self, age_s: float, *, limit: int, after: datetime | None) -> Awaitable[Deleted]: ...


class _Broom:
    """Goes over the rows of one kind from the oldest on, a batch at a time, and remembers how far it came."""

    def __init__(self, delete: _Delete, age_s: float, batch: int) -> None:
        self._delete = delete
        self._age_s = age_s
        self._batch = batch
        self._up_to: datetime | None = None
        self._full_look_s = 0.0

    async def sweep(self) -> bool:
        """Deletes one batch; whether there may be another one now."""
        now_s = time.monotonic()
        if now_s >= self._full_look_s:
            self._up_to, self._full_look_s = None, now_s + _FULL_LOOK_S
        deleted = await self._delete(self._age_s, limit=self._batch, after=self._up_to)
        self._up_to = deleted.up_to or self._up_to
        return deleted.rows == self._batch


class Retainer:
    """One step for all kinds; ages in seconds. Dead jobs are kept where `dead_s` is None."""

    def __init__(
        self,
        store: Store,
        *,
        done_s: float,
        attempt_s: float,
        dead_s: float | None,
        batch: int,
        sweep_s: float,
        ring: Callable[[str], None],
        rng: random.Random,
    ) -> None:
        self._store = store
        self._ring = ring
        self._rng = rng
        self.configure(done_s=done_s, attempt_s=attempt_s, dead_s=dead_s, batch=batch, sweep_s=sweep_s)

    def configure(self, *, done_s: float, attempt_s: float, dead_s: float | None, batch: int, sweep_s: float) -> None:
        """Deletes what is older than these, from the next step on."""
        self._brooms = (
            _Broom(self._store.retain_jobs, done_s, batch),
            _Broom(self._store.retain_attempts, attempt_s, batch),
        )
        self._dead_s = dead_s
        self._dead_batch = min(batch, _DEAD_AT_ONCE)
        self._sweep_s = sweep_s

    async def step(self) -> float:
        """Deletes one batch of each kind; seconds until the next one, with jitter that keeps replicas apart."""
        more = [await broom.sweep() for broom in self._brooms]
        if self._dead_s is not None:
            more.append(await self._delete_dead(self._dead_s))
        return (_NEXT_BATCH_S if any(more) else self._sweep_s) * self._rng.uniform(0.8, 1.2)

    async def _delete_dead(self, age_s: float) -> bool:
        deleted = await self._store.retain_dead(age_s, limit=self._dead_batch)
        for destination, jobs in sorted(deleted.items()):
            event(logging.WARNING, "dead_letters_deleted", destination=destination, jobs=jobs, older_than_s=age_s)
            self._ring(destination)
        return deleted.total() == self._dead_batch
