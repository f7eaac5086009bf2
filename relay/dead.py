"""Dead letters, many at once: which there are, another chance for them, or an end."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from relay import lanes
from relay.database import CONFLICTS, Database, Transaction
from relay.errors import RelayError
from relay.job import Jobs, Shown
from relay.rows import Parameters, Row
from relay.rules.redrive import Letter, Report, accepted, explain

# Counts of the jobs behind a dead letter stop here; see behind.sql.
BEHIND_CAP = 100
_LOOK = 1_000
_BATCH = 100

# (destination, id) of the dead letter looked at last.
Place = tuple[str, int]


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


@dataclass(frozen=True, slots=True)
class Opened(Shown):
    """A dead letter with all that is known of it, and how many jobs wait for it in its lane, up to BEHIND_CAP."""

    behind: int | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Some of the selected dead letters, and the place from which to look on; None where there are no more."""

    letters: list[Letter]
    after: Place | None


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


class Letters(Bulk):
    """Lists, redrives and discards dead letters."""

    async def find(self, selection: Selection) -> list[Letter]:
        """The selected dead letters, by destination and id."""
        found: list[Letter] = []
        async for letters in self._walk(await self.pin(selection)):
            found += await self._with_behind(letters, BEHIND_CAP)
        return found

    async def page(self, selection: Selection, *, after: Place | None, most: int, behind_cap: int) -> Page:
        """At most `most` of the selected dead letters after `after`; how many wait behind each, up to `behind_cap`.

        Looks at no more than one statement does, so at a bounded cost: there may be fewer, or none, and yet more to
        look at.
        """
        pinned = await self.pin(selection)
        found = await self._look(pinned, after or (pinned.destination or "", 0))
        fitting = [Letter(*row[:10]) for row in found if row[10]]
        letters = await self._with_behind(fitting[:most], behind_cap)
        if len(fitting) > most:
            return Page(letters, (str(letters[-1].destination), letters[-1].id))
        return Page(letters, (found[-1][1], found[-1][0]) if found and found[-1][11] else None)

    async def open(self, job_id: int, *, budgets: Mapping[str, int]) -> Opened:
        """Everything about one dead letter, its content too. Raises RelayError for a job that is not dead."""
        [shown] = await Jobs(self._database, actor=self._actor).show(
            str(job_id), by_key=False, budgets=budgets, content=True
        )
        if shown.job.id != job_id or shown.job.status != "dead":
            raise RelayError(f"job {job_id} is {shown.job.status}, not dead; `relay job show {job_id}` says more")
        behind = await self._behind([job_id], BEHIND_CAP)
        return Opened(shown.why, shown.job, shown.content, behind.get(job_id))

    async def redrive(
        self,
        selection: Selection,
        *,
        force: bool = False,
        delivered: bool = True,
        why: str | None = None,
        rate_per_s: float | None = None,
        dry_run: bool = False,
    ) -> Report:
        """Makes dead letters due again with their key and a new budget; by id and with `delivered`, delivered jobs too.

        Jobs of an entity whose later jobs may have been delivered are refused, unless `force` sends them marked.
        """
        delivered = delivered and bool(selection.ids)
        act = partial(self._redrive, {"force": force, "delivered": delivered, "actor": self._actor, "why": why})
        report = Report("redrive", dry_run)
        allowed = partial(accepted, report, force=force, delivered=delivered)
        await self._all(selection, report, allowed, act, rate_per_s)
        return report

    async def discard(
        self,
        selection: Selection,
        *,
        why: str | None = None,
        rate_per_s: float | None = None,
        dry_run: bool = False,
    ) -> Report:
        """Gives dead letters up; the lanes that stood still behind them go on in the same transaction."""
        act = partial(self._discard, {"actor": self._actor, "why": why})
        report = Report("discard", dry_run)
        await self._all(selection, report, partial(accepted, report), act, rate_per_s)
        return report

    async def _redrive(self, how: Parameters, transaction: Transaction, batch: Sequence[Letter]) -> list[Row]:
        changed = await transaction.fetch("redrive", {"ids": [letter.id for letter in batch], **how})
        await lanes.go_on(transaction, _lanes(changed))
        return changed

    async def _discard(self, how: Parameters, transaction: Transaction, batch: Sequence[Letter]) -> list[Row]:
        return await discard(transaction, "discard", batch, how)

    async def _walk(self, pinned: Selection) -> AsyncIterator[list[Letter]]:
        """The selected jobs by destination and id, as many at a time as one statement looks at."""
        if pinned.ids:
            [found] = await self._database.transact(("dead_by_id", {"ids": list(pinned.ids)}))
            yield [Letter(*row) for row in found]
            return
        after, wanted = (pinned.destination or "", 0), pinned.limit
        while wanted != 0:
            found = await self._look(pinned, after)
            letters = [Letter(*row[:10]) for row in found if row[10]][:wanted]
            yield letters
            if not (found and found[-1][11]):
                return
            after = found[-1][1], found[-1][0]
            wanted = None if wanted is None else wanted - len(letters)

    async def _look(self, pinned: Selection, after: Place) -> list[Row]:
        """One look of dead.sql: the rows that fit, and the last one looked at where there are more."""
        filters = {
            "destination": pinned.destination, "topic": pinned.topic, "entity_key": pinned.entity_key,
            "since": pinned.since, "until": pinned.until, "error": pinned.error,
        }  # fmt: skip
        place = {"after_destination": after[0], "after_id": after[1], "width": _LOOK}
        [found] = await self._database.transact(("dead", {**filters, **place}))
        return found

    async def _with_behind(self, letters: Sequence[Letter], cap: int) -> list[Letter]:
        behind = await self._behind([letter.id for letter in letters if letter.holds_lane], cap)
        return [replace(letter, behind=behind.get(letter.id)) for letter in letters]

    async def _behind(self, ids: Sequence[int], cap: int) -> dict[int, int]:
        [found] = await self._database.transact(("behind", {"ids": list(ids), "cap": cap}))
        return dict(found)


async def discard(transaction: Transaction, statement: str, batch: Sequence[Letter], how: Parameters) -> list[Row]:
    """Ends these jobs by `statement`, holding their lanes before and going on after; comes back with those it ended."""
    held = {(each.destination, each.entity_key) for each in batch if each.destination and each.entity_key}
    await lanes.lock(transaction, held)
    changed = await transaction.fetch(statement, {"ids": sorted(letter.id for letter in batch), **how})
    await lanes.go_on(transaction, _lanes(changed))
    return changed


def _refuse_missing(report: Report, ids: Sequence[int], letters: Sequence[Letter]) -> None:
    missing = sorted(set(ids) - {letter.id for letter in letters})
    report.refused += len(missing)
    report.reasons += [f"there is no job {job_id}" for job_id in missing]


def _lanes(changed: Sequence[Row]) -> set[lanes.Lane]:
    return {(row[1], row[2]) for row in changed if row[2] is not None}
