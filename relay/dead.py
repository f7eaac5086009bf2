"""Dead letters, many at once: which there are, another chance for them, or an end."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from relay import lanes
from relay.bulk import Bulk, Selection, discard, lanes_in
from relay.database import Transaction
from relay.errors import RelayError
from relay.job import Jobs, Shown
from relay.rows import Parameters, Row
from relay.rules.redrive import Letter, Report, accepted

# Counts of the jobs behind a dead letter stop here; see behind.sql.
BEHIND_CAP = 100
_LOOK = 1_000

# (destination, id) of the dead letter looked at last.
Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Opened(Shown):
    """A dead letter with all that is known of it, and how many jobs wait for it in its lane, up to BEHIND_CAP."""

    behind: int | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Some of the selected dead letters, and the place from which to look on; None where there are no more."""

    letters: list[Letter]
    after: Place | None


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
        await lanes.go_on(transaction, lanes_in(changed))
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
        place = {"after_destination": after[0], "after_id": after[1], "width": _LOOK}
        [found] = await self._database.transact(("dead", {**pinned.filters, "error": pinned.error, **place}))
        return found

    async def _with_behind(self, letters: Sequence[Letter], cap: int) -> list[Letter]:
        behind = await self._behind([letter.id for letter in letters if letter.holds_lane], cap)
        return [replace(letter, behind=behind.get(letter.id)) for letter in letters]

    async def _behind(self, ids: Sequence[int], cap: int) -> dict[int, int]:
        [found] = await self._database.transact(("behind", {"ids": list(ids), "cap": cap}))
        return dict(found)
