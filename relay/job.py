"""One job under an operator's eyes: why it is not delivered, and an end to it."""

import base64
import codecs
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from psycopg.types.json import Jsonb

from relay import lanes
from relay.database import CONFLICTS, Database, Transaction
from relay.errors import RelayError
from relay.rows import Row
from relay.rules.why import Attempt, Holder, JobState, Operation, why

# How far a search by key looks in each index, and how many jobs it shows; see find.sql.
REACH = 100_000
MOST = 20
_AHEAD_CAP = 10_000
_RESPONSE_BYTES = 4_096
_LARGEST_ID = 2**63 - 1


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

    async def find(self, key: str, *, reach: int = REACH) -> list[int]:
        """The ids of the jobs with this idempotency key: one for each destination, at most MOST.

        Looks at `reach` jobs in each index. Raises RelayError when there is none.
        """
        [[(ids, complete)]] = await self._database.transact(("find", {"key": key, "cap": reach, "most": MOST}))
        if ids:
            return list(ids)
        if complete:
            raise RelayError(f"no job has the id or idempotency key {key!r}")
        raise RelayError(
            f"no job has the id {key!r}, and none that is unfinished or among the newest {reach:,} has it as its "
            "idempotency key; ask the column idempotency_key of outbox.job for older ones, which reads all of it"
        )

    async def show(
        self,
        sought: str,
        *,
        by_key: bool,
        budgets: Mapping[str, int],
        content: bool,
    ) -> list[Shown]:
        """The job with this id, else those that `find` finds by this idempotency key.

        `by_key` does not try the id. `budgets` holds `max_attempts` of every destination that is configured here.
        Raises RelayError when there is no such job.
        """
        states: list[JobState] = []
        if sought.isascii() and sought.isdecimal() and int(sought) <= _LARGEST_ID and not by_key:
            states = await self._states([int(sought)])
        states = states or await self._states(await self.find(sought))
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
        lane = {(destination, entity_key)} if destination is not None and entity_key is not None else set()
        await lanes.lock(transaction, lane)
        cancelled = await transaction.fetch("cancel", {"id": job_id, "destination": destination})
        if not cancelled:
            raise RelayError(await self._refusal(transaction, job_id))
        await lanes.go_on(transaction, lane)
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

    async def _states(self, ids: Sequence[int]) -> list[JobState]:
        found, attempts = await self._database.transact(
            ("show", {"ids": list(ids), "cap": _AHEAD_CAP}),
            ("attempts", {"ids": list(ids), "response_bytes": _RESPONSE_BYTES}),
        )
        failures: dict[int, list[Attempt]] = {}
        for job_id, *fields, response in attempts:
            answer = readable(response, cut=len(response) == _RESPONSE_BYTES)
            failures.setdefault(job_id, []).append(Attempt(*(*fields, *answer)))
        return [_state(row, failures.get(row[0], [])) for row in found]

    async def _contents(self, ids: Sequence[int]) -> dict[int, Content]:
        [found] = await self._database.transact(("body", {"ids": list(ids)}))
        return {job_id: Content(*readable(body), headers or {}) for job_id, body, headers in found}


def readable(data: bytes, *, cut: bool = False) -> tuple[str | None, str | None]:
    """Bytes as text where they are UTF-8, else in base64. `cut` ones may end within a character, which is left out."""
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(data, final=not cut), None
    except UnicodeDecodeError:
        return None, base64.b64encode(data).decode()


def _state(row: Row, failures: list[Attempt]) -> JobState:
    holder = Holder(*row[26:34]) if row[26] is not None else None
    operation = Operation(*row[34:38]) if row[34] is not None else None
    fields = (*row[:26], holder, operation, failures)
    return JobState(*fields)
