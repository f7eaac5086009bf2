"""A loop of the relay: step, wait, step again, until it is told to stop between two steps."""

import asyncio
import contextlib
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable

from relay.database import CONFLICTS, UNAVAILABLE
from relay.telemetry import event

_BUG_PAUSE_S = 1.0


class Loop:
    """Calls `step`, which returns the seconds until its next call; `wake` calls it sooner."""

    def __init__(self, name: str, step: Callable[[], Awaitable[float]], rng: random.Random) -> None:
        self.name = name
        #: When a step succeeded last, on the monotonic clock.
        self.succeeded_s = -math.inf
        self._step = step
        self._rng = rng
        self._woken = asyncio.Event()
        self._stopping = False
        self._away_s = 0.0
        # When the next step is to begin, and when one that succeeds was: the same, until one fails.
        self._next_s = self._owed_s = time.monotonic()

    @property
    def away(self) -> bool:
        """Whether the last step found the database away."""
        return self._away_s > 0

    @property
    def behind_s(self) -> float:
        """For how many seconds a step that succeeds is owed; 0 while the loop waits as planned, or was stopped."""
        return 0.0 if self._stopping else max(0.0, time.monotonic() - self._owed_s)

    @property
    def stuck_s(self) -> float:
        """For how many seconds the end of a step is owed, whether it succeeds or not."""
        return 0.0 if self._stopping else max(0.0, time.monotonic() - self._next_s)

    def wake(self) -> None:
        """Ends the wait before the next step."""
        if not self._woken.is_set():
            self._woken.set()
            self._next_s = min(self._next_s, time.monotonic())
            self._owed_s = min(self._owed_s, self._next_s)

    def stop(self) -> None:
        """Ends the loop after the step under way, so that no statement is cut off with its outcome unknown."""
        self._stopping = True
        self._woken.set()

    async def run(self) -> None:
        """Runs until `stop`. Neither a database that is away nor a bug in one step ends it."""
        while not self._stopping:
            began_s = time.monotonic()
            pause_s = await self._guarded()
            self._next_s = time.monotonic() + (0.0 if self._woken.is_set() else pause_s)
            if self.succeeded_s >= began_s:
                self._owed_s = self._next_s
            if pause_s > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if pause_s == math.inf else pause_s):
                        await self._woken.wait()
            self._woken.clear()

    async def _guarded(self) -> float:
        try:
            pause_s = await self._step()
        except CONFLICTS as conflict:
            event(logging.INFO, "conflict", loop=self.name, why=_first_line(conflict))
            return self._rng.uniform(0.05, 0.15)
        except UNAVAILABLE as away:
            if self._away_s == 0.0:
                event(logging.WARNING, "database_away", loop=self.name, why=_first_line(away))
            self._away_s = min(5.0, 2 * self._away_s or 0.1)
            return self._away_s * self._rng.uniform(0.5, 1.5)
        except Exception as bug:  # noqa: BLE001 - loud, and the loop lives: the other jobs must be delivered
            event(logging.ERROR, "loop_crashed", loop=self.name, fault=bug)
            return _BUG_PAUSE_S
        if self._away_s:
            event(logging.INFO, "database_back", loop=self.name)
            self._away_s = 0.0
        self.succeeded_s = time.monotonic()
        return pause_s


def _first_line(fault: BaseException) -> str:
    return (str(fault).strip().splitlines() or [type(fault).__name__])[0]
