"""What the pipeline does to the database: one method a statement, values in and out."""

import time
from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from relay import lanes, rows
from relay.database import CONFLICTS, Database
from relay.model import Destination, Settlement
from relay.rows import Claimed, Deleted, FirstDue, Parameters, Range, Reclaimed, Settled

_CLAIM_LOCK_TIMEOUT_MS = 100
_CLAIM_TRIES = 4
_SETTLE_LOCK_TIMEOUT_MS = 500
_MOMENT_MS = 50


class Store:
    """The statements of one replica.

    `locked_by` names this process in leases: no other process, before or after, may use the same name. Without
    `keep_done` a settle deletes what was delivered.
    """

    def __init__(self, database: Database, *, locked_by: str, lease_s: float, keep_done: bool = True) -> None:
        self._database = database
        #: Whether delivered jobs stay in the table.
        self.keep_done = keep_done
        self._token: Parameters = {"locked_by": locked_by}
        self._lease: Parameters = {"locked_by": locked_by, "lease_s": float(lease_s)}

    async def claim(self, ranges: Sequence[Range], *, payload_bytes: int) -> Claimed:
        """Starts due jobs within `ranges` and `payload_bytes`; of no destination more than it has free.

        A conflict over a lane whose lower id committed late is tried again, at last with one row a range;
        raises one of CONFLICTS when that fails too.
        """
        for tries in range(1, _CLAIM_TRIES + 1):
            parameters = {
                **rows.claim_parameters(ranges, narrow=tries > 2),
                **self._lease,
                "payload_bytes": payload_bytes,
            }
            sent_s = time.monotonic()
            try:
                # A claim that a crash of the database forgets is only a second delivery.
                [found] = await self._database.transact(
                    ("claim", parameters), durable=False, lock_timeout_ms=_CLAIM_LOCK_TIMEOUT_MS
                )
            except CONFLICTS:
                if tries == _CLAIM_TRIES:
                    raise
            else:
                return rows.claimed(found, sent_s)
        raise AssertionError("the last try returns or raises")

    async def first_due(self) -> list[FirstDue]:
        """Each range of anybody's destinations that has due rows, except where they are paused."""
        [found] = await self._database.transact(("first_due", {}))
        return rows.first_due(found)

    async def settle(self, settlements: Sequence[Settlement], *, patient: bool = True) -> Settled:
        """Writes outcomes and goes on with the lanes they have, in one transaction and one round trip.

        What was no longer ours changes nothing and is missing from the ids that come back. Raises one of
        CONFLICTS when somebody holds one of the rows, longer than a claim does or, unless `patient`, longer than
        a moment; then nothing is written.
        """
        batch = sorted(settlements, key=lambda s: s.job.id)
        written = rows.outcome_parameters(batch, keep_done=self.keep_done)
        outcomes = {**written, **rows.failure_parameters(batch), **self._token}
        touched = rows.lanes_of(batch)
        next_up = [("settle_lanes", {**rows.lane_parameters(touched), **self._lease})] if touched else []
        gone = {s.job.destination: s.failure.detail for s in batch if s.pauses and s.failure}
        pauses = [
            ("pause", {"name": name, "why": why, "actor": self._token["locked_by"]})
            for name, why in sorted(gone.items())
        ]
        sent_s = time.monotonic()
        ours, *found = await self._database.transact(
            ("settle", outcomes),
            *next_up,
            *pauses,
            lock_timeout_ms=_SETTLE_LOCK_TIMEOUT_MS if patient else _MOMENT_MS,
        )
        return rows.settled(ours, found[0] if touched else [], batch, sent_s)

    async def renew(self, ids: Sequence[int], claims: Sequence[int]) -> tuple[set[int], set[int]]:
        """Extends leases: the ids extended, and the ids lost. The rest was locked, and may be tried again."""
        held = {"ids": ids, "claims": claims}
        [extended] = await self._database.transact(("renew", {**held, **self._lease}))
        renewed = {row[0] for row in extended}
        if len(renewed) == len(ids):
            return renewed, set()
        [lost] = await self._database.transact(("lost", {**held, **self._token}))
        return renewed, {row[0] for row in lost}

    async def reclaim(self, destinations: Sequence[Destination], *, limit: int) -> list[Reclaimed]:
        """Takes back jobs of these destinations whose lease has lapsed, at most `limit` of each."""
        parameters = {**rows.policy_parameters(destinations), **self._lease, "limit": limit}
        async with self._database.transaction() as transaction:
            found = await transaction.fetch("reclaim", parameters)
            await lanes.go_on(transaction, {(row[1], row[2]) for row in found if row[2] is not None})
        return [Reclaimed(*row) for row in found]

    async def heal(self, after: tuple[str, str], *, limit: int) -> tuple[list[tuple[str, str]], tuple[str, str]]:
        """Looks at up to `limit` lanes after `after` for stranded ones and goes on with them.

        Returns the lanes (destination, entity key) it healed, and where to look next; ("", "") is the start.
        """
        parameters = {"after_destination": after[0], "after_entity_key": after[1], "limit": limit}
        async with self._database.transaction() as transaction:
            found = await transaction.fetch("stranded", parameters)
            stranded = [(row[0], row[1]) for row in found if row[2]]
            await lanes.go_on(transaction, stranded)
        return stranded, next(((row[0], row[1]) for row in found if row[3]), ("", ""))

    async def release_standing_lanes(self, destinations: Sequence[str], *, limit: int) -> int:
        """Lets lanes go on that stand behind a dead job, where the policy has become `skip`; how many."""
        async with self._database.transaction() as transaction:
            found = await transaction.fetch(
                "start_standing_lanes", {"destinations": list(destinations), "limit": limit}
            )
            standing = {(row[0], row[1]) for row in found}
            # A dead job need not be its lane's holder: a lower one may have been committed late.
            await lanes.lock(transaction, standing)
            await lanes.go_on(transaction, standing)
        return len(found)

    async def retain_jobs(self, age_s: float, *, limit: int, after: datetime | None = None) -> Deleted:
        """Deletes at most `limit` done and discarded jobs older than that, none that finished before `after`."""
        return await self._retain("retain_jobs", age_s, limit, after)

    async def retain_attempts(self, age_s: float, *, limit: int, after: datetime | None = None) -> Deleted:
        """Deletes at most `limit` failed attempts older than that, none that failed before `after`."""
        return await self._retain("retain_attempts", age_s, limit, after)

    async def _retain(self, statement: str, age_s: float, limit: int, after: datetime | None) -> Deleted:
        parameters = {"age_s": float(age_s), "limit": limit, "after": after}
        [[row]] = await self._database.transact((statement, parameters), durable=False)
        return Deleted(*row)

    async def retain_dead(self, age_s: float, *, limit: int) -> Counter[str]:
        """Deletes at most `limit` dead jobs older than that and goes on with their lanes; how many of each destination.

        What somebody holds is left for another time.
        """
        [old] = await self._database.transact(("old_dead", {"age_s": float(age_s), "limit": limit}))
        return await self._delete_dead(old, float(age_s))

    async def _delete_dead(self, old: Sequence[rows.Row], age_s: float) -> Counter[str]:
        try:
            async with self._database.transaction() as transaction:
                await lanes.lock(transaction, {(row[1], row[2]) for row in old if row[2] is not None})
                deleted = await transaction.fetch("retain_dead", {"ids": [row[0] for row in old], "age_s": age_s})
                await lanes.go_on(transaction, {(row[0], row[1]) for row in deleted if row[1] is not None})
                return Counter(row[0] for row in deleted)
        except (*CONFLICTS, lanes.RestlessError):
            if len(old) == 1:
                return Counter()
        middle = len(old) // 2
        return await self._delete_dead(old[:middle], age_s) + await self._delete_dead(old[middle:], age_s)

    async def set_idle(self, *, idle: bool) -> None:
        """Asks producers for a NOTIFY from now on, or saves them the trouble."""
        await self._database.transact(("idle", {"idle": int(idle)}), durable=False)
