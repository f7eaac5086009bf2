"""Many jobs at once: which they are, and small transactions in which something is done to them."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from relay import lanes
from relay.database import CONFLICTS, Database, Transaction
from relay.rows import Parameters, Row
from relay.rules.redrive import Letter, Report, explain

_BATCH = 100


@dataclass(frozen=True, slots=True)
class Selection:
    """The jobs with these ids; without ids, those that every filter fits. None fits everything.

    `topic` is a topic or a pattern, as in a subscription. `since` and `until` bound when a dead letter died, or when a
    job that waits was inserted; a timedelta counts back from the database's now. `error` is looked for in class and
    detail of the last attempt, in upper or lower case. `limit` takes the first of those by destination and id.
    `unrouted` asks for jobs that nobody subscribed to, in place of those that wait for a destination.
    """

    ids: tuple[int, ...] = ()
    destination: str | None = None
    topic: str | None = None
    entity_key: str | None = None
    since: datetime | timedelta | None = None
    until: datetime | timedelta | None = None
    error: str | None = None
    limit: int | None = None
    unrouted: bool = False

    @property
    def filters(self) -> dict[str, object]:
        """What statements call the filters that every kind of job has."""
        return {name: getattr(self, name) for name in ("destination", "topic", "entity_key", "since", "until")}


Act = Callable[[Transaction, Sequence[Letter]], Awaitable[list[Row]]]


class Bulk:
    """Acts on many jobs at once, in small transactions. `actor` is the person in whose name that happens."""

    def __init__(self, database: Database, *, actor: str) -> None:
        self._database = database
        self._actor = actor

    async def pin(self, selection: Selection) -> Selection:
        """The same selection with its times as instants, none after now: what dies or comes later is not in it."""
        [[(now,)]] = await self._database.transact(("clock", {}))
        since, until = (
            now - moment if isinstance(moment, timedelta) else moment for moment in (selection.since, selection.until)
        )
        return replace(selection, since=since, until=min(until or now, now))

    async def any(self, destination: str) -> bool:
        """Whether this destination, registered or not, has such a job."""
        async for letters in self._walk(await self.pin(Selection(destination=destination, limit=1))):
            if letters:
                return True
        return False

    def _walk(self, pinned: Selection) -> AsyncIterator[list[Letter]]:
        """The selected jobs, as many at a time as one statement looks at."""
        raise NotImplementedError

    async def _all(
        self,
        selection: Selection,
        report: Report,
        allowed: Callable[[Sequence[Letter]], list[Letter]],
        act: Act,
        rate_per_s: float | None,
    ) -> None:
        # Ten batches a second at a slow rate, full ones at a fast one.
        size = _BATCH if rate_per_s is None else max(1, min(_BATCH, round(rate_per_s / 10)))
        turn_s = time.monotonic()
        redrives = report.verb == "redrive"
        async for letters in self._walk(await self.pin(selection)):
            _refuse_missing(report, selection.ids, letters)
            some = allowed(letters)
            for batch in (some[start : start + size] for start in range(0, len(some), size)):
                if report.dry_run:
                    changed: list[Row] = [(each.id, each.destination, None, redrives and each.marked) for each in batch]
                else:
                    if rate_per_s is not None:
                        await asyncio.sleep(turn_s - time.monotonic())
                        turn_s = time.monotonic() + len(batch) / rate_per_s
                    changed = await self._in_pieces(act, batch)
                report.changed += len(changed)
                report.left += len(batch) - len(changed)
                report.marked += sum(row[3] for row in changed)
                for row in changed:
                    if row[1] is not None:
                        report.destinations[row[1]] = report.destinations.get(row[1], 0) + 1
        explain(report)

    async def _in_pieces(self, act: Act, batch: Sequence[Letter]) -> list[Row]:
        """One transaction; where somebody holds a row for long, smaller ones round it."""
        try:
            async with self._database.transaction() as transaction:
                return await act(transaction, batch)
        except CONFLICTS:
            if len(batch) == 1:
                return []
        middle = len(batch) // 2
        return [*await self._in_pieces(act, batch[:middle]), *await self._in_pieces(act, batch[middle:])]


async def discard(transaction: Transaction, statement: str, batch: Sequence[Letter], how: Parameters) -> list[Row]:
    """Ends these jobs by `statement`, holding their lanes before and going on after; comes back with those it ended."""
    held = {(each.destination, each.entity_key) for each in batch if each.destination and each.entity_key}
    await lanes.lock(transaction, held)
    changed = await transaction.fetch(statement, {"ids": sorted(letter.id for letter in batch), **how})
    await lanes.go_on(transaction, lanes_in(changed))
    return changed


def _refuse_missing(report: Report, ids: Sequence[int], letters: Sequence[Letter]) -> None:
    missing = sorted(set(ids) - {letter.id for letter in letters})
    report.refused += len(missing)
    report.reasons += [f"there is no job {job_id}" for job_id in missing]


def lanes_in(changed: Sequence[Row]) -> set[lanes.Lane]:
    """The lanes of rows that start with id, destination and entity key."""
    return {(row[1], row[2]) for row in changed if row[2] is not None}
