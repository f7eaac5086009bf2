"""Decides when to look for due jobs of which destination, how far, and how many to take."""

import random
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple, Protocol

from relay.model import Destination, Job, Room
from relay.rows import START, Claimed, Looked, Mark, Range
from relay.store import Store

PRIORITIES = (0, 1, 2, 3)
WIDEST = 4_096
# One claim in so many looks at the least urgent level first, so that none starves.
_TURNS = 8
# One claim in so many looks at retries before first attempts, so that neither starves the other where not slots are
# scarce but rate tokens. Without a common divisor, so that each turn meets the other one too.
_RETRY_TURNS = 3
_SHORTEST_PAUSE_S = 0.005
# A NOTIFY takes a lock that serialises commits. Above this many heard in a second, producers are told to save
# them, and every destination is looked at this often until a claim finds nothing.
_LOUD_PER_S = 200
_UNANNOUNCED_PAUSE_S = 0.05
# The flag that producers read is shared; whoever lowered it may be gone.
_REPEAT_IDLE_S = 5.0
# A range that only holds dead index entries is skipped up to the last row seen, less this slack: `run_at`
# is the start of the producer's transaction, which may commit a while after later ones.
_SLACK = timedelta(seconds=2)
_FULL_LOOK_S = 1.5
# Destinations in one claim: each costs some pages even where nothing is due, and all of them wait for the answer.
_MOST_ASKED = 50
_SLOW_CLAIM_S = 0.020
_LARGEST_PAYLOAD = 1 << 20


class Note(Protocol):
    """Hears of a destination whether more may be due than a claim could take, and whether more retries."""

    def __call__(self, name: str, *, more: bool, retries: bool) -> None: ...


class Level(NamedTuple):
    """One range of a destination's due jobs: of a priority the first attempts, or the retries."""

    priority: int
    retries: bool


@dataclass(slots=True)
class _View:
    """What is known of one destination: when to look again, and how far the search has come."""

    look_s: float = 0.0
    pause_s: float = _SHORTEST_PAUSE_S
    width: int = 0
    after: dict[Level, Mark] = field(default_factory=dict)
    swept: dict[Level, Mark] = field(default_factory=dict)
    full_look_s: float = 0.0
    turn: int = 0
    rung: bool = False


class Claimer:
    """One claim a step, for every destination whose time has come and that has room.

    Each destination is looked at again 5 ms after jobs were found, then after 10, 20 … ms up to `poll_s`:
    between the last look and the moment producers see that we are idle, a commit can go unannounced.
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
        poll_s: float,
        notify: bool,
        rng: random.Random,
    ) -> None:
        self._store = store
        self._views = {d.name: _View() for d in destinations}
        self._wanted = wanted
        self._bytes_held = bytes_held
        self._payload_budget_bytes = payload_budget_bytes
        self._on_claimed = on_claimed
        self._note = note
        self._wake = wake
        self._poll_s = poll_s
        self._notify = notify
        self._rng = rng
        self._idle: bool | None = None
        self._told_s = -_REPEAT_IDLE_S
        self._heard = 0
        self._heard_since_s = 0.0
        self._slow_until_s = 0.0

    def configure(self, destinations: Sequence[Destination]) -> None:
        """Claims for these from now on, and looks at each of them soon."""
        self._views = {d.name: self._views.get(d.name) or _View() for d in destinations}
        self.ring("")

    def ring(self, name: str) -> None:
        """Something may be due for this destination; an empty name means for any. Unknown names are not ours."""
        for view in self._views.values() if not name else filter(None, [self._views.get(name)]):
            view.look_s = 0.0
            view.pause_s = _SHORTEST_PAUSE_S
            view.rung = True
        self._wake()

    def heard(self, name: str) -> None:
        """A producer's NOTIFY for this destination; an empty name when some may have been missed."""
        self._heard += 1
        self.ring(name)

    async def step(self) -> float:
        """Claims once; seconds until the next claim."""
        now_s = time.monotonic()
        asked = self._ask(now_s)
        if asked:
            shares = self._shares(asked)
            claimed = await self._store.claim(self._ranges(asked, shares, now_s), payload_bytes=sum(shares.values()))
            took_s = time.monotonic() - now_s
            if took_s > _SLOW_CLAIM_S * (1 + len(claimed.jobs) / 50):
                self._slow_until_s = now_s + took_s + 10.0
            self._learn(asked, claimed, shares)
            self._on_claimed(claimed.jobs, now_s)
            await self._announce(found=bool(claimed.jobs))
        return max(0.0, min((v.look_s for v in self._views.values()), default=now_s + self._poll_s) - time.monotonic())

    def _ask(self, now_s: float) -> dict[str, Room]:
        """The destinations to look at, each with how many jobs it can take."""
        asked: dict[str, Room] = {}
        left = self._left()
        # Those that were rung come first.
        for name, view in sorted(self._views.items(), key=lambda each: each[1].look_s):
            if len(asked) == _MOST_ASKED:
                break
            # Half a pause early is early enough to share a statement.
            if view.look_s - now_s <= view.pause_s / 2:
                view.rung = False
                wanted = self._wanted(name)
                if wanted.jobs and self._share(name, left, askers=1) >= _LARGEST_PAYLOAD:
                    asked[name] = wanted
                else:
                    # No room: the dispatcher rings when there is some.
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
        return self._payload_budget_bytes - sum(map(self._bytes_held, self._views))

    def _ranges(self, asked: dict[str, Room], shares: dict[str, int], now_s: float) -> list[Range]:
        ranges = []
        for name, wanted in asked.items():
            view = self._views[name]
            fresh = not view.after
            view.turn += 1
            for level in _levels(view.turn):
                # A search under way goes on after the last row looked at, in the ranges that had more.
                width = _width(view, wanted, retries=level.retries)
                if width and (fresh or level in view.after):
                    after = view.after.get(level) or self._first(view, level, now_s)
                    ranges.append(
                        Range(
                            name, level.priority, wanted.jobs, width, after, shares[name], level.retries, wanted.retries
                        )
                    )
            if fresh and now_s >= view.full_look_s:
                view.full_look_s = now_s + _FULL_LOOK_S
        return ranges

    def _first(self, view: _View, level: Level, now_s: float) -> Mark:
        """Where to begin: at the front, or behind what earlier claims have emptied while vacuum could not."""
        if now_s >= self._slow_until_s or now_s >= view.full_look_s:
            return START
        return view.swept.get(level, START)

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
            # Retries beyond those that may start are left for the time being, so no further ones are looked for.
            sated = retried[name] >= wanted.retries
            full = [
                seen
                for seen in looked[name]
                if seen.rows >= _width(view, wanted, retries=seen.retries) and not (seen.retries and sated)
            ]
            for seen in looked[name]:
                if seen.last.run_at is not None:
                    view.swept[Level(seen.priority, seen.retries)] = Mark(seen.last.run_at - _SLACK)
            filled = started[name] >= wanted.jobs or left[name] < _LARGEST_PAYLOAD
            if full and not filled:
                # Rows of few lanes, or of lanes somebody holds: look further, twice as far.
                view.after = {Level(seen.priority, seen.retries): seen.last for seen in full}
                view.width = min(WIDEST, 2 * max(view.width, wanted.jobs))
                view.look_s = now_s
            else:
                view.after, view.width = {}, 0
                self._schedule(view, now_s, found=started[name] > 0, filled=filled)
            if view.rung:
                # The claim may have begun before what rang was committed.
                view.look_s = 0.0
            self._note(name, more=filled, retries=sated)

    def _schedule(self, view: _View, now_s: float, *, found: bool, filled: bool) -> None:
        if filled:
            # More may be due; the dispatcher rings as soon as there is room for it.
            view.pause_s = _SHORTEST_PAUSE_S
            view.look_s = now_s + self._poll_s
            return
        longest_s = self._poll_s if self._idle or not self._notify else min(self._poll_s, _UNANNOUNCED_PAUSE_S)
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


def _levels(turn: int) -> list[Level]:
    """The order in which a claim looks at a destination's ranges."""
    priorities = PRIORITIES if turn % _TURNS else PRIORITIES[::-1]
    kinds = (False, True) if turn % _RETRY_TURNS else (True, False)
    return [Level(priority, retries) for priority in priorities for retries in kinds]


def _width(view: _View, room: Room, *, retries: bool) -> int:
    """How many rows of a range to look at: none of retries where none may start."""
    wanted = room.retries if retries else room.jobs
    return wanted and min(WIDEST, max(view.width, wanted))
