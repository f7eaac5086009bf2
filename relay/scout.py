"""Looks where there is due work at all, so that claims need not ask every destination."""

import random
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from relay.rows import FirstDue
from relay.rules.rest import Rest
from relay.store import Store

_SHORTEST_PAUSE_S = 0.05


class Found(Protocol):
    """Hears of the first due row of each range, how long it took to see them, and how long it is to the next look."""

    def __call__(self, first_due: Sequence[FirstDue], *, took_s: float, pause_s: float) -> None: ...


class Scout:
    """One look a step: every 50 ms while the claimer is `busy`, and producers notify nobody; else, after 100, 200 …
    ms, every `poll_s`. So what was committed unannounced as the claimer became idle is found soon.
    """

    def __init__(
        self, store: Store, *, found: Found, busy: Callable[[], bool], poll_s: float, rng: random.Random
    ) -> None:
        self._store = store
        self._found = found
        self._busy = busy
        self._poll_s = poll_s
        self._rng = rng
        self._pause_s = 0.0
        self._rest = Rest()

    async def step(self) -> float:
        """Looks once; seconds until the next look."""
        began_s = time.monotonic()
        first_due = await self._store.first_due()
        took_s = time.monotonic() - began_s
        pause_s = _SHORTEST_PAUSE_S if self._busy() else max(_SHORTEST_PAUSE_S, 2 * self._pause_s)
        self._pause_s = min(self._poll_s, pause_s)
        rests_s = max(self._pause_s * self._rng.uniform(0.9, 1.1), self._rest.after(took_s))
        self._found(first_due, took_s=took_s, pause_s=rests_s)
        return rests_s
