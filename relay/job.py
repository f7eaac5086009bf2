"""One job under an operator's eyes: why it is not delivered, and an end to it."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from psycopg.types.json import Jsonb

from relay import rows
from relay.database import CONFLICTS, Database, Transaction
from relay.errors import RelayError
from relay.rows import Row
from relay.rules.why import Attempt, Holder, JobState, Operation, why

# How far a search by key looks in each index, and how many jobs it shows; see find.sql.
REACH = 100_000
MOST = 20
_AHEAD_CAP = 10_000
_RESPONSE_BYTES = 200
_LARGEST_ID = 2**63 - 1
_LOCK_TRIES = 10


@dataclass(frozen=True, slots=True)
class Content:
    """What a job sends. `text` is the body where it is UTF-8, else `base64` has it."""

    text: str | None
    base64: str | None
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Shown:
    """A job, and why it is where it is. `content` only where it was asked for."""

    why: str
    job: JobState
    content: Content | None = None


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A job that was discarded, and the status it had."""

    id: int
    destination: str | None
    entity_key: str | None
    was: str


class Jobs:
    """Finds, explains and cancels jobs. `actor` is the person in whose name that happens."""

    def __init__(self, database: Database, *, actor: str) -> None:
        self._database = database
        self._actor = actor

    async def show(self, sought: str, *, by_key: bool, budgets: Mapping[str, int], content: bool) -> list[Shown]:
        """The job with this id, else those with this idempotency key (one for each destination, at most MOST).

        `by_key` does not try the id. `budgets` holds `max_attempts` of every destination that is configured here.
        Raises RelayError when there is none.
        """
        states: list[JobState] = []
        if sought.isascii() and sought.isdecimal() and int(sought) <= _LARGEST_ID and not by_key:
            states = await self._states([int(sought)])
        states = states or await self._states(await self._find(sought))
        ids = [state.id for state in states]
        contents = await self._contents(ids) if content else {}
        [replicas] = await self._database.transact(("replicas", {}))
        return [
            Shown(
                why(state, budget=budgets.get(state.destination or ""), replicas=len(replicas)),
                state,
                contents.get(state.id),
            )
            for state in states
        ]

    async def cancel(self, job_id: int, reason: str | None) -> Cancelled:
        """Discards a job that waits, is dead or was never routed; its lane goes on in the same transaction.

        Raises RelayError when it runs, has finished, does not exist, or its lane stays locked.
        """
        try:
            async with self._database.transaction() as transaction:
                return await self._cancel(transaction, job_id, reason)
        except CONFLICTS as conflict:
            raise RelayError(f"job {job_id} or its entity is locked by somebody else; try again") from conflict

    async def _cancel(self, transaction: Transaction, job_id: int, reason: str | None) -> Cancelled:
        found = await transaction.fetch("lane_of", {"id": job_id})
        if not found:
            raise RelayError(f"there is no job {job_id}")
        destination, entity_key, _ = found[0]
        in_lane = destination is not None and entity_key is not None
        if in_lane:
            await _lock_lane(transaction, destination, entity_key)
        cancelled = await transaction.fetch("cancel", {"id": job_id, "destination": destination})
        if not cancelled:
            raise RelayError(await self._refusal(transaction, job_id))
        if in_lane:
            lane = rows.lane_parameters({(destination, entity_key): False})
            await transaction.fetch("settle_lanes", {**lane, "locked_by": "", "lease_s": 0.0})
        [[was]] = cancelled
        detail = {"was": was, **({"why": reason} if reason else {})}
        await transaction.fetch(
            "operation",
            {
                "actor": self._actor,
                "verb": "cancel",
                "job_id": job_id,
                "destination": destination,
                "detail": Jsonb(detail),
            },
        )
        return Cancelled(job_id, destination, entity_key, was)

    async def _refusal(self, transaction: Transaction, job_id: int) -> str:
        found = await transaction.fetch("lane_of", {"id": job_id})
        match found[0][2] if found else "deleted":
            case "running":
                return f"job {job_id} is running: a request that is on its way cannot be called back; try again later"
            case "done":
                return f"job {job_id} was delivered already"
            case "discarded":
                return f"job {job_id} was discarded already"
            case status:
                return f"job {job_id} is {status} since a moment ago; try again"

    async def _find(self, key: str) -> list[int]:
        [[(ids, complete)]] = await self._database.transact(("find", {"key": key, "cap": REACH, "most": MOST}))
        if ids:
            return list(ids)
        if complete:
            raise RelayError(f"no job has the id or idempotency key {key!r}")
        raise RelayError(
            f"no job has the id {key!r}, and none that is unfinished or among the newest {REACH:,} has it as its "
            "idempotency key; ask the column idempotency_key of outbox.job for older ones, which reads all of it"
        )

    async def _states(self, ids: Sequence[int]) -> list[JobState]:
        found, attempts = await self._database.transact(
            ("show", {"ids": list(ids), "cap": _AHEAD_CAP}),
            ("attempts", {"ids": list(ids), "response_bytes": _RESPONSE_BYTES}),
        )
        failures: dict[int, list[Attempt]] = {}
        for job_id, *fields in attempts:
            fields[-1] = printable(fields[-1])
            failures.setdefault(job_id, []).append(Attempt(*fields))
        return [_state(row, failures.get(row[0], [])) for row in found]

    async def _contents(self, ids: Sequence[int]) -> dict[int, Content]:
        [found] = await self._database.transact(("body", {"ids": list(ids)}))
        return {job_id: _content(body, headers or {}) for job_id, body, headers in found}


async def _lock_lane(transaction: Transaction, destination: str, entity_key: str) -> None:
    """Holds the lane's mutex until the transaction ends; see lock_lane.sql."""
    lane = {"destination": destination, "entity_key": entity_key}
    locked: Row | None = None
    for _ in range(_LOCK_TRIES):
        found = await transaction.fetch("lock_lane", lane)
        if not found or (found[0] == locked and locked[1]):
            return
        locked = found[0]
    raise RelayError(f"entity {entity_key!r} of {destination} moves on faster than it can be held; try again")


def printable(data: bytes) -> str:
    """Bytes of somebody else's as one line that no terminal obeys: what is not printable is escaped."""
    return escaped(data.decode("utf-8", "backslashreplace"))


def escaped(text: str) -> str:
    """Text of somebody else's as one line that no terminal obeys."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _state(row: Row, failures: list[Attempt]) -> JobState:
    holder = Holder(*row[26:34]) if row[26] is not None else None
    operation = Operation(*row[34:38]) if row[34] is not None else None
    fields = (*row[:26], holder, operation, failures)
    return JobState(*fields)


def _content(body: bytes, headers: Mapping[str, str]) -> Content:
    try:
        return Content(body.decode(), None, headers)
    except UnicodeDecodeError:
        return Content(None, base64.b64encode(body).decode(), headers)
