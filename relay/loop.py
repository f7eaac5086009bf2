"""A loop of the relay: step, wait, step again, until it is told to stop between two steps."""

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable

from relay.database import CONFLICTS, UNAVAILABLE
from relay.telemetry import event

_BUG_PAUSE_S = 1.0


class Loop:
    """Calls `step`, which returns the seconds until its next call; `wake` calls it sooner."""

    def __init__(self, name: str, step: Callable[[], Awaitable[float]], rng: random.Random) -> None:
        self.name = name
        self._step = step
        self._rng = rng
        self._woken = asyncio.Event()
        self._stopping = False
        self._away_s = 0.0

    def wake(self) -> None:
        """Ends the wait before the next step."""
        self._woken.set()

    def stop(self) -> None:
        """Ends the loop after the step under way, so that no statement is cut off with its outcome unknown."""
        self._stopping = True
        self._woken.set()

    async def run(self) -> None:
        """Runs until `stop`. Neither a database that is away nor a bug in one step ends it."""
        while not self._stopping:
            pause_s = await self._guarded()
            if pause_s > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if pause_s == float("inf") else pause_s):
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
        return pause_s


def _first_line(fault: BaseException) -> str:
    return (str(fault).strip().splitlines() or [type(fault).__name__])[0]
