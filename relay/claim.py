"""Decides when to look for due jobs of which destination, and how many to take."""

import math
import random
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from relay.model import Destination, Job, Room
from relay.rows import Claimed, FirstDue, Looked
from relay.search import Search
from relay.store import Store

_SHORTEST_PAUSE_S = 0.005
# A NOTIFY takes a lock that serialises commits. Above this many heard in a second, producers are told to save
# them until a claim finds nothing; meanwhile a destination is left to the scout after this pause.
_LOUD_PER_S = 200
_UNANNOUNCED_PAUSE_S = 0.05
# The flag that producers read is shared; whoever lowered it may be gone.
_REPEAT_IDLE_S = 5.0
# Destinations in one claim: each costs some pages even where nothing is due, and all of them wait for the answer.
_MOST_ASKED = 50
# Where a claim, or a look of the scout, takes longer, there is something in front that vacuum has not removed.
_SLOW_S = 0.020
_SLOW_FOR_S = 10.0
_LARGEST_PAYLOAD = 1 << 20


class Note(Protocol):
    """Hears of a destination whether more may be due than a claim could take, and whether more retries."""

    def __call__(self, name: str, *, more: bool, retries: bool) -> None: ...


@dataclass(slots=True)
class _View:
    """What is known of one destination: when to look again, and its search.

    `full` is one that has no room, or none left: more of it is claimed when the dispatcher rings.
    """

    pause_s: float
    look_s: float = 0.0
    full: bool = False
    rung: bool = False
    search: Search = field(default_factory=Search)


class Claimer:
    """One claim a step, for every destination whose time has come and that has room.

    Each destination is looked at again 5 ms after jobs were found, then after 10, 20 … ms up to `poll_s`, or to
    50 ms while producers send no NOTIFY; then not until it is rung, or the scout has `found` something for it.
    `scout` asks the scout to look now.
    """

    def __init__(
        self,
        store: Store,
        destinations: Sequence[Destination],
        *,
        wanted: Callable[[str], Room],
        bytes_held: Callable[[str], int],
        payload_budget_bytes: int,
        on_claimed: Callable[[Sequence[Job], float], None],
        note: Note,
        wake: Callable[[], None],
        scout: Callable[[], None],
        poll_s: float,
        notify: bool,
        rng: random.Random,
    ) -> None:
        self._store = store
        self._views = {d.name: _View(poll_s) for d in destinations}
        self._wanted = wanted
        self._bytes_held = bytes_held
        self._payload_budget_bytes = payload_budget_bytes
        self._on_claimed = on_claimed
        self._note = note
        self._wake = wake
        self._scout = scout
        self._poll_s = poll_s
        self._notify = notify
        self._rng = rng
        self._idle: bool | None = None
        self._told_s = -_REPEAT_IDLE_S
        self._heard = 0
        self._heard_since_s = 0.0
        self._slow_until_s = 0.0

    def configure(self, destinations: Sequence[Destination]) -> None:
        """Claims for these from now on, and looks at those that are new."""
        self._views = {d.name: self._views.get(d.name) or _View(self._poll_s) for d in destinations}
        self._wake()

    def ring(self, name: str) -> None:
        """Something may be due for this destination; an empty name means for any. Unknown names are not ours."""
        if not name:
            self._scout()
        elif view := self._views.get(name):
            view.look_s = 0.0
            view.pause_s = _SHORTEST_PAUSE_S
            view.rung = True
            self._wake()

    def heard(self, name: str) -> None:
        """A producer's NOTIFY for this destination; an empty name when some may have been missed."""
        self._heard += 1
        self.ring(name)

    @property
    def busy(self) -> bool:
        """Whether producers were asked to save their NOTIFY, so that jobs come unannounced."""
        return self._notify and not self._idle

    def found(self, first_due: Sequence[FirstDue], *, took_s: float, pause_s: float) -> None:
        """What the scout saw in front of each range, in `took_s` seconds; it looks again after `pause_s`."""
        now_s = time.monotonic()
        if took_s > _SLOW_S:
            self._slow_until_s = now_s + pause_s + _SLOW_FOR_S
        for due in first_due:
            view = self._views.get(due.destination)
            if view is None:  # somebody else's
                continue
            view.search.found(due)
            if view.look_s > now_s and not view.full:
                view.look_s = 0.0
                self._wake()

    async def step(self) -> float:
        """Claims once; seconds until the next claim."""
        now_s = time.monotonic()
        asked = self._ask(now_s)
        if asked:
            shares = self._shares(asked)
            slow = now_s < self._slow_until_s
            ranges = [
                each
                for name, room in asked.items()
                for each in self._views[name].search.ranges(name, room, shares[name], slow=slow)
            ]
            claimed = await self._store.claim(ranges, payload_bytes=sum(shares.values()))
            took_s = time.monotonic() - now_s
            if took_s > _SLOW_S * (1 + len(claimed.jobs) / 50):
                self._slow_until_s = now_s + took_s + _SLOW_FOR_S
            self._learn(asked, claimed, shares)
            self._on_claimed(claimed.jobs, now_s)
            await self._announce(found=bool(claimed.jobs))
        elif self._idle:
            await self._announce(found=False)
        next_s = min((view.look_s for view in self._views.values()), default=math.inf)
        return max(0.0, min(next_s, self._told_s + _REPEAT_IDLE_S if self._idle else math.inf) - time.monotonic())

    def _ask(self, now_s: float) -> dict[str, Room]:
        """The destinations to look at, each with how many jobs it can take."""
        # Half a pause early is early enough to share a statement.
        ready = [each for each in self._views.items() if each[1].look_s - now_s <= each[1].pause_s / 2]
        asked: dict[str, Room] = {}
        left = self._left()
        # Those that were rung come first.
        for name, view in sorted(ready, key=lambda each: each[1].look_s):
            if len(asked) == _MOST_ASKED:
                break
            view.rung = view.full = False
            wanted = self._wanted(name)
            if wanted.jobs and self._share(name, left, askers=1) >= _LARGEST_PAYLOAD:
                asked[name] = wanted
            else:
                view.full = True
                view.look_s = now_s + self._poll_s
        return asked

    def _shares(self, names: Collection[str]) -> dict[str, int]:
        """How many payload bytes each of `names` may claim.

        What is left of the budget is shared, with a share kept for who asks next: a destination that holds much
        gets less, and one that holds nothing always gets one payload. So nobody's payloads keep others waiting.
        """
        left = self._left()
        return {name: self._share(name, left, askers=len(names)) for name in names}

    def _share(self, name: str, left: int, *, askers: int) -> int:
        mine = self._bytes_held(name)
        return max((left - mine) // (askers + 1), 0 if mine else _LARGEST_PAYLOAD)

    def _left(self) -> int:
        return self._payload_budget_bytes - self._bytes_held("")

    def _learn(self, asked: dict[str, Room], claimed: Claimed, shares: dict[str, int]) -> None:
        now_s = time.monotonic()
        started, retried, left = dict.fromkeys(asked, 0), dict.fromkeys(asked, 0), dict(shares)
        for job in claimed.jobs:
            started[job.destination] += 1
            retried[job.destination] += job.is_retry
            left[job.destination] -= len(job.body)
        looked: dict[str, list[Looked]] = {name: [] for name in asked}
        for seen in claimed.looked:
            looked[seen.destination].append(seen)
        for name, wanted in asked.items():
            view = self._views.get(name)
            if view is None:  # removed meanwhile
                continue
            sated = retried[name] >= wanted.retries
            filled = started[name] >= wanted.jobs or left[name] < _LARGEST_PAYLOAD
            if view.search.saw(looked[name], wanted, sated=sated, filled=filled):
                view.look_s = now_s
            else:
                self._schedule(view, now_s, found=started[name] > 0, filled=filled)
            if view.rung:
                # The claim may have begun before what rang was committed.
                view.look_s = 0.0
            self._note(name, more=filled, retries=sated)

    def _schedule(self, view: _View, now_s: float, *, found: bool, filled: bool) -> None:
        if filled:
            view.full = True
            view.pause_s = _SHORTEST_PAUSE_S
            view.look_s = now_s + self._poll_s
            return
        longest_s = min(self._poll_s, _UNANNOUNCED_PAUSE_S) if self.busy else self._poll_s
        if not found and view.pause_s >= longest_s:
            view.look_s = math.inf
            return
        view.pause_s = _SHORTEST_PAUSE_S if found else min(longest_s, 2 * view.pause_s)
        view.look_s = now_s + view.pause_s * self._rng.uniform(0.9, 1.1)

    async def _announce(self, *, found: bool) -> None:
        """Tells the producers' trigger whether a NOTIFY is of use."""
        now_s = time.monotonic()
        loud = self._heard > _LOUD_PER_S * max(1.0, now_s - self._heard_since_s)
        if now_s - self._heard_since_s > 1.0:
            self._heard, self._heard_since_s = 0, now_s
        idle = self._notify and (self._idle or not found) and not (loud and found)
        if idle != self._idle or (idle and not found and now_s - self._told_s > _REPEAT_IDLE_S):
            await self._store.set_idle(idle=idle)
            self._idle, self._told_s = idle, now_s
            if not idle:
                self._scout()
