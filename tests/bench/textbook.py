"""The textbook design: each worker claims one row and completes one row, a transaction each.

One UPDATE around SELECT … FOR UPDATE SKIP LOCKED LIMIT 1, one UPDATE by id, a shared pool of twenty connections. No
lease, no lane, no signature, no batch. With BENCH_TABLE=ours it works on the relay's table, whose constraints and
indexes serve more than that; else on one with no more columns than it needs, and one index of what is pending. Either
way an index answers each claim.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
import psycopg
from psycopg_pool import AsyncConnectionPool

from relay.migrate import migrate
from tests.bench.peers.post import session
from tests.bench.peers.verbs import Put, obey

_EMPTY_S = 0.1
_TABLE = b"""
CREATE SCHEMA textbook;
CREATE TABLE textbook.job (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    status text NOT NULL DEFAULT 'pending',
    run_at timestamptz NOT NULL DEFAULT now(),
    started_at timestamptz,
    finished_at timestamptz,
    idempotency_key uuid NOT NULL DEFAULT gen_random_uuid(),
    payload json NOT NULL
);
CREATE INDEX job_pending ON textbook.job (run_at, id) WHERE status = 'pending';
"""


@dataclass(frozen=True)
class Statements:
    """What is said to one table."""

    insert: bytes
    claim: bytes
    complete: bytes


OWN = Statements(
    insert=b"INSERT INTO textbook.job (payload) SELECT %(payload)s::json FROM generate_series(1, %(jobs)s)",
    claim=b"""
UPDATE textbook.job SET status = 'running', started_at = now()
 WHERE id = (SELECT id FROM textbook.job
              WHERE status = 'pending' AND run_at <= now()
              ORDER BY run_at, id LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING id, idempotency_key::text, convert_to(payload::text, 'UTF8')
""",
    complete=b"UPDATE textbook.job SET status = 'done', finished_at = now() WHERE id = %s",
)
OURS = Statements(
    insert=b"""
INSERT INTO outbox.job (topic, destination, payload)
SELECT 'bench', 'bench', %(payload)s::json FROM generate_series(1, %(jobs)s)
""",
    # PostgreSQL makes `attempts <= 0` of the constant false, and finds no index for it.
    claim=b"""
UPDATE outbox.job SET status = 'running', locked_by = 'textbook', locked_until = now() + interval '1 minute',
                      claims = claims + 1, attempts = attempts + 1
 WHERE id = (SELECT id FROM outbox.job
              WHERE status = 'pending' AND destination = 'bench' AND priority = 1
                AND (attempts > 0) = (SELECT false) AND run_at <= now()
              ORDER BY run_at, id LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING id, idempotency_key, convert_to(payload::text, 'UTF8')
""",
    complete=b"""
UPDATE outbox.job SET status = 'done', finished_at = now(), holds_lane = false, locked_by = NULL, locked_until = NULL
 WHERE id = %s
""",
)
SAID = OURS if os.environ.get("BENCH_TABLE") == "ours" else OWN


async def prepare(dsn: str) -> None:
    """The table."""
    if SAID is OURS:
        await migrate(dsn)
        return
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute(_TABLE)


@asynccontextmanager
async def producer(dsn: str) -> AsyncIterator[Put]:
    """Inserts by SQL."""
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:

        async def put(jobs: int, payload: str) -> None:
            await connection.execute(SAID.insert, {"jobs": jobs, "payload": payload})

        yield put


async def work(pool: AsyncConnectionPool, http: aiohttp.ClientSession, url: str) -> None:
    """One worker, for ever."""
    while True:
        async with pool.connection() as connection:
            row = await (await connection.execute(SAID.claim)).fetchone()
        if row is None:
            await asyncio.sleep(_EMPTY_S)
            continue
        headers = {"Content-Type": "application/json", "Idempotency-Key": row[1]}
        async with http.post(url, data=row[2], headers=headers) as answer:
            await answer.read()
        async with pool.connection() as connection:
            await connection.execute(SAID.complete, (row[0],))


async def run(dsn: str, url: str, slots: int) -> None:
    """So many workers, until SIGTERM ends the process: one that is cancelled in a query may go on."""
    async with (
        AsyncConnectionPool(dsn, min_size=20, max_size=20, kwargs={"autocommit": True}, timeout=120) as pool,
        session() as http,
    ):
        await asyncio.gather(*(work(pool, http, url) for _ in range(slots)))


if __name__ == "__main__":
    asyncio.run(obey(prepare=prepare, producer=producer, run=run))
