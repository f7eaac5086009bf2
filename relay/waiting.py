"""Jobs that wait, many at once: an end to them."""

from collections.abc import AsyncIterator, Sequence
from functools import partial

from relay.bulk import Bulk, Selection, discard
from relay.database import Transaction
from relay.rows import Parameters, Row
from relay.rules.redrive import Letter, Report

_LOOK = 1_000
# The count of running jobs stops here; see waiting_running.sql.
_RUNNING_CAP = 1_000
_PLACE = ("after_id", "after_destination", "after_entity_key", "after_priority", "after_retry", "after_run_at")


class Waiting(Bulk):
    """Cancels jobs that are pending, blocked or unrouted."""

    async def cancel(
        self,
        selection: Selection,
        *,
        why: str | None = None,
        rate_per_s: float | None = None,
        dry_run: bool = False,
    ) -> Report:
        """Discards the selected jobs; their lanes go on in the same transaction. Those that run are refused.

        First those of entities, by destination, entity and id, then those without one.
        """
        report = Report("discard", dry_run)
        pinned = await self.pin(selection)
        await self._refuse_running(report, pinned)
        how = {"actor": self._actor, "why": why, "unrouted": pinned.unrouted}
        await self._all(pinned, report, partial(_accepted, report), partial(self._discard, how), rate_per_s)
        return report

    async def _refuse_running(self, report: Report, pinned: Selection) -> None:
        if pinned.unrouted:
            return
        [[(running,)]] = await self._database.transact(("waiting_running", {**pinned.filters, "cap": _RUNNING_CAP}))
        if running:
            report.matched += running
            report.refused += running
            more = " or more" if running == _RUNNING_CAP else ""
            report.reasons.append(
                f"{running}{more} running: a request on its way cannot be called back; try again later"
            )

    async def _discard(self, how: Parameters, transaction: Transaction, batch: Sequence[Letter]) -> list[Row]:
        return await discard(transaction, "waiting_discard", batch, how)

    async def _walk(self, pinned: Selection) -> AsyncIterator[list[Letter]]:
        wanted = pinned.limit
        for walk in ("unrouted",) if pinned.unrouted else ("lanes",) if pinned.entity_key else ("lanes", "due"):
            # Within a destination an entity has a place of its own; see waiting.sql.
            start = pinned.destination or "", (pinned.destination and pinned.entity_key) or ""
            after: Row | None = (0, *start, -1, False, "-infinity")
            while after and wanted != 0:
                look = {**pinned.filters, **dict(zip(_PLACE, after, strict=True)), "walk": walk, "width": _LOOK}
                [found] = await self._database.transact(("waiting", look))
                letters = [Letter(*row[:10]) for row in found if row[10]][:wanted]
                yield letters
                wanted = None if wanted is None else wanted - len(letters)
                last = found[-1] if found else None
                after = (last[0], last[1], last[3], *last[12:]) if last and last[11] else None


def _accepted(report: Report, letters: Sequence[Letter]) -> list[Letter]:
    report.matched += len(letters)
    return list(letters)
