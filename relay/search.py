"""How far the search for due jobs of one destination has come: which ranges a claim looks at, from where, how wide."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from relay.model import Room
from relay.rows import START, FirstDue, Looked, Mark, Range

PRIORITIES = (0, 1, 2, 3)
WIDEST = 4_096
# One claim in so many looks at the least urgent level first, so that none starves.
_TURNS = 8
# One claim in so many looks at retries before first attempts, so that neither starves the other where not slots are
# scarce but rate tokens. Without a common divisor, so that each turn meets the other one too.
_RETRY_TURNS = 3
# While vacuum is held back a claim begins at the last row seen, less a slack, since `run_at` is the start of the
# producer's transaction, which may commit after later ones. What was delivered in that time is passed over by each
# claim, so only one in so many takes the longer one. What commits later still, the scout finds.
_SLACK, _LONG_SLACK = timedelta(seconds=0.1), timedelta(seconds=2)
_LONG_TURNS = 7


class Level(NamedTuple):
    """One range of a destination's due jobs: of a priority the first attempts, or the retries."""

    priority: int
    retries: bool


class Search:
    """The search of one destination: asks for its next ranges, and learns what a claim saw there."""

    __slots__ = ("_after", "_found", "_swept", "_turn", "_width")

    def __init__(self) -> None:
        self._width = 0
        # Where a search under way goes on, where earlier ones came to, and what the scout saw since.
        self._after: dict[Level, Mark] = {}
        self._swept: dict[Level, datetime] = {}
        self._found: dict[Level, Mark] = {}
        self._turn = 0

    def ranges(self, name: str, room: Room, share_bytes: int, *, slow: bool) -> list[Range]:
        """Where the next claim looks; while claims are `slow`, behind what vacuum has not removed."""
        self._turn += 1
        ranges = []
        for level in _levels(self._turn):
            # A search under way goes on after the last row looked at, in the ranges that had more.
            width = self._wide(room, retries=level.retries)
            if width and (not self._after or level in self._after):
                after = self._after.get(level) or (self._begin(level) if slow else START)
                ranges.append(
                    Range(name, level.priority, room.jobs, width, after, share_bytes, level.retries, room.retries)
                )
        return ranges

    def saw(self, looked: Sequence[Looked], room: Room, *, sated: bool, filled: bool) -> bool:
        """Takes what a claim saw; whether to look on at once, twice as far: rows of few lanes, or of held ones.

        `filled` is a claim that had no room for more, `sated` one that had none for more retries.
        """
        self._swept |= {Level(seen.priority, seen.retries): seen.last.run_at for seen in looked if seen.last.run_at}
        more = {
            Level(seen.priority, seen.retries): seen.last
            for seen in looked
            # Retries beyond those that may start are left for the time being, so no further ones are looked for.
            if seen.rows >= self._wide(room, retries=seen.retries) and not (seen.retries and sated)
        }
        if filled or not more:
            self._after, self._width = {}, 0
            return False
        self._after, self._width = more, min(WIDEST, 2 * max(self._width, room.jobs))
        return True

    def found(self, due: FirstDue) -> None:
        """Begins the next search of a range no later than with this row of it."""
        self._found[Level(due.priority, due.retries)] = due.before

    def _begin(self, level: Level) -> Mark:
        # Kept apart: a claim under way does not know of it, and would sweep it away.
        found = self._found.pop(level, None)
        if (swept := self._swept.get(level)) is None:
            return found or START
        begin = Mark(swept - (_SLACK if self._turn % _LONG_TURNS else _LONG_SLACK))
        return min(found or begin, begin)

    def _wide(self, room: Room, *, retries: bool) -> int:
        """How many rows of a range to look at: none of retries where none may start."""
        wanted = room.retries if retries else room.jobs
        return wanted and min(WIDEST, max(self._width, wanted))


def _levels(turn: int) -> list[Level]:
    """The order in which a claim looks at a destination's ranges."""
    priorities = PRIORITIES if turn % _TURNS else PRIORITIES[::-1]
    kinds = (False, True) if turn % _RETRY_TURNS else (True, False)
    return [Level(priority, retries) for priority in priorities for retries in kinds]
