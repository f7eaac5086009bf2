"""What the tests of the store insert, ask for and look at."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from psycopg import sql
from psycopg.rows import dict_row

from relay.database import SQL
from relay.model import Destination, ErrorClass, Failure, Job, RetryPolicy, Settlement
from relay.rows import START, Mark, Range
from relay.store import Store
from tests.conftest import Connection

LEASE_S = 60.0
BUDGET = 1 << 30
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
FAILURE = Failure(ErrorClass.STATUS, "answered 503", 0.25, status=503, response=b"\x00busy", trace_id=TRACE)


@dataclass(frozen=True)
class Jobs:
    """Rows of `outbox.job`, by the connection of a superuser in autocommit."""

    connection: Connection

    async def add(self, entity_key: str | None = None, destination: str | None = "a", **columns: object) -> int:
        """Inserts one job, due at once unless `columns` say otherwise; its id."""
        [id_] = await self.add_many(1, entity_key, destination, **columns)
        return id_

    async def add_many(
        self, count: int, entity_key: str | None = None, destination: str | None = "a", **columns: object
    ) -> list[int]:
        """Inserts `count` equal jobs in one statement; their ids."""
        values = {"destination": destination, "topic": "t", "entity_key": entity_key, **columns}
        if "body" not in values:
            values.setdefault("payload", "{}")
        statement = sql.SQL(
            "INSERT INTO outbox.job ({}) OVERRIDING SYSTEM VALUE SELECT {} FROM generate_series(1, {}) RETURNING id"
        ).format(
            sql.SQL(", ").join(map(sql.Identifier, values)),
            sql.SQL(", ").join(v if isinstance(v, sql.SQL) else sql.Literal(v) for v in values.values()),
            count,
        )
        return [row[0] for row in await (await self.connection.execute(statement)).fetchall()]

    async def skip_id(self) -> int:
        """Draws an id, as a transaction does that has not committed yet."""
        return int(await self.value("SELECT nextval('outbox.job_id_seq')"))

    async def change(self, id_: int, assignments: str) -> None:
        """Writes to one row behind the relay's back."""
        await self.connection.execute(b"UPDATE outbox.job SET " + assignments.encode() + b" WHERE id = %s", [id_])

    async def row(self, id_: int) -> dict[str, Any]:
        """One row, by column."""
        async with self.connection.cursor(row_factory=dict_row) as cursor:
            [row] = await (await cursor.execute("SELECT * FROM outbox.job WHERE id = %s", [id_])).fetchall()
        return row

    async def statuses(self, *ids: int) -> list[str]:
        """The statuses of these jobs, or of all, in id order."""
        found = await self.connection.execute(
            "SELECT status FROM outbox.job WHERE id = ANY (%s) OR cardinality(%s::bigint[]) = 0 ORDER BY id",
            [list(ids), list(ids)],
        )
        return [row[0] for row in await found.fetchall()]

    async def count(self, status: str) -> int:
        """How many jobs are in this state."""
        return int(await self.value("SELECT count(*) FROM outbox.job WHERE status = %s", status))

    async def value(self, statement: str, *parameters: object) -> Any:
        """The first column of the first row."""
        row = await (await self.connection.execute(statement.encode(), parameters or None)).fetchone()
        return row and row[0]

    async def stranded(self) -> list[tuple[str, str]]:
        """Lanes whose first job is blocked while nothing of the lane runs; none unless the protocol is broken."""
        found = await self.connection.execute(
            """SELECT destination, entity_key
                 FROM (SELECT DISTINCT ON (destination, entity_key) destination, entity_key, status,
                              bool_or(status = 'running') OVER (PARTITION BY destination, entity_key) AS runs
                         FROM outbox.job
                        WHERE holds_lane AND entity_key IS NOT NULL
                        ORDER BY destination, entity_key, id) head
                WHERE status = 'blocked' AND NOT runs"""
        )
        return await found.fetchall()


def ranges(
    destination: str = "a",
    *,
    free: int = 64,
    width: int = 64,
    priorities: Sequence[int] = (0, 1, 2, 3),
    after: Mark = START,
) -> list[Range]:
    """Where to look for one destination's jobs, first attempts and retries."""
    return [
        Range(destination, priority, free, width, after, retries=retries)
        for priority in priorities
        for retries in (False, True)
    ]


async def claim(store: Store, destination: str = "a", **where: Any) -> list[Job]:
    """The jobs that one claim starts for one destination, in id order."""
    claimed = await store.claim(ranges(destination, **where), payload_bytes=BUDGET)
    return sorted(claimed.jobs, key=lambda job: job.id)


async def claim_ids(store: Store, destination: str = "a", **where: Any) -> list[int]:
    """The ids of the jobs that one claim starts."""
    return [job.id for job in await claim(store, destination, **where)]


def done(job: Job, *, chain: bool = False) -> Settlement:
    """The job was delivered."""
    return Settlement(job, "done", chain=chain)


def retry(job: Job, delay_s: float = 60.0, *, chain: bool = False) -> Settlement:
    """The attempt failed and is to be repeated."""
    return Settlement(job, "pending", delay_s=delay_s, failure=FAILURE, chain=chain)


def dead(job: Job, *, blocks: bool, chain: bool = False) -> Settlement:
    """The budget is spent; `blocks` keeps the lane standing behind the job."""
    return Settlement(job, "dead", holds_lane=blocks, failure=FAILURE, chain=chain)


def release(job: Job) -> Settlement:
    """The job was given back without being sent."""
    return Settlement(job, "pending", charged=False)


def webhook(name: str = "a", *, on_dead: Literal["block", "skip"] = "block", max_attempts: int = 12) -> Destination:
    """A destination as configuration has it."""
    return Destination(name, "http://127.0.0.1/", on_dead=on_dead, retry=RetryPolicy(max_attempts=max_attempts))


def statement(name: str) -> bytes:
    """One of the relay's own statements."""
    return SQL[name]
