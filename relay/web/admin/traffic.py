"""What this replica's attempts came to in each minute of the last hour, from what it counts anyway.

In memory, and of this replica alone: others have their own.
"""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from relay.telemetry.tally import Counts, Tally

MINUTES = 60
_MINUTE_S = 60.0
_BOUNDS_S = Counts().attempt_s.bounds


@dataclass(frozen=True, slots=True)
class _Counted:
    """Since the start: attempts that delivered and that failed, and how many took how long."""

    delivered: int
    failed: int
    classes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Minute:
    """`ago` minutes before the current one: attempts that delivered or failed, and in seconds what half and 95 % of
    them took at most, as estimated from classes of durations; None where there were none."""

    ago: int
    delivered: int
    failed: int
    p50_s: float | None
    p95_s: float | None


class Traffic:
    """Looks at the counts once a minute and remembers an hour of them, so it does not grow."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._past: deque[dict[str, _Counted]] = deque(maxlen=MINUTES)
        self.turn()

    async def run(self) -> None:
        """Turns the minutes, until it is cancelled."""
        while True:
            await asyncio.sleep(_MINUTE_S)
            self.turn()

    def turn(self) -> None:
        """A minute is over."""
        self._past.append({name: _counted(counts) for name, counts in self._tally.of.items()})

    def hour(self, destination: str | None = None) -> list[Minute]:
        """The last 60 minutes, oldest first and the current one last, of one destination or of all together."""
        now = {name: _counted(counts) for name, counts in self._tally.of.items()}
        names = [name for name in now if destination in (None, name)]
        looks = [*self._past, now]
        minutes = [
            _minute(len(looks) - 1 - place, [_since(looks[place - 1], looks[place], name) for name in names])
            for place in range(1, len(looks))
        ]
        return [Minute(ago, 0, 0, None, None) for ago in range(MINUTES - 1, len(minutes) - 1, -1)] + minutes

    def success_ratio(self, destination: str) -> float | None:
        """The share of a destination's attempts in the last hour that delivered; None where there were none."""
        hour = self.hour(destination)
        delivered, failed = sum(each.delivered for each in hour), sum(each.failed for each in hour)
        return delivered / (delivered + failed) if delivered + failed else None


def _counted(counts: Counts) -> _Counted:
    return _Counted(counts.delivered, sum(counts.failed.values()), tuple(counts.attempt_s.counts))


def _since(earlier: Mapping[str, _Counted], later: Mapping[str, _Counted], name: str) -> _Counted:
    # A destination that the configuration has got meanwhile was not looked at before.
    before, after = earlier.get(name, _NOTHING), later.get(name, _NOTHING)
    classes = tuple(now - then for then, now in zip(before.classes, after.classes, strict=True))
    return _Counted(after.delivered - before.delivered, after.failed - before.failed, classes)


def _minute(ago: int, parts: Sequence[_Counted]) -> Minute:
    classes = [sum(counts) for counts in zip(*(part.classes for part in parts), strict=True)]
    return Minute(
        ago,
        sum(part.delivered for part in parts),
        sum(part.failed for part in parts),
        _percentile(classes, 0.5),
        _percentile(classes, 0.95),
    )


def _percentile(classes: Sequence[int], share: float) -> float | None:
    """As Prometheus estimates it: values spread evenly within their class; above the last bound, that bound."""
    wanted, reached, lower_s = share * sum(classes), 0, 0.0
    for upper_s, count in zip(_BOUNDS_S, classes, strict=False):
        if count and reached + count >= wanted:
            return lower_s + (upper_s - lower_s) * (wanted - reached) / count
        reached, lower_s = reached + count, upper_s
    return lower_s if sum(classes) else None


_NOTHING = _counted(Counts())
