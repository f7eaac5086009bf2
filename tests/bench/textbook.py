"""The textbook design on our own table: each worker claims one row and completes one row, a transaction each.

One UPDATE around SELECT … FOR UPDATE SKIP LOCKED LIMIT 1, one UPDATE by id, a shared pool of twenty connections.
No lease, no lane, no signature, no batch.
"""

import asyncio

import aiohttp
from psycopg_pool import AsyncConnectionPool

from relay.migrate import migrate
from tests.bench.ours import producer
from tests.bench.peers.post import session
from tests.bench.peers.verbs import obey

_EMPTY_S = 0.1
CLAIM = b"""
UPDATE outbox.job SET status = 'running', locked_by = 'textbook', locked_until = now() + interval '1 minute',
                      claims = claims + 1, attempts = attempts + 1
 WHERE id = (SELECT id FROM outbox.job
              WHERE status = 'pending' AND destination = 'bench' AND priority = 1 AND (attempts > 0) = false
                AND run_at <= now()
              ORDER BY run_at, id LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING id, idempotency_key, convert_to(payload::text, 'UTF8')
"""
COMPLETE = b"""
UPDATE outbox.job SET status = 'done', finished_at = now(), holds_lane = false, locked_by = NULL, locked_until = NULL
 WHERE id = %s
"""


async def work(pool: AsyncConnectionPool, http: aiohttp.ClientSession, url: str) -> None:
    """One worker, for ever."""
    while True:
        async with pool.connection() as connection:
            row = await (await connection.execute(CLAIM)).fetchone()
        if row is None:
            await asyncio.sleep(_EMPTY_S)
            continue
        headers = {"Content-Type": "application/json", "Idempotency-Key": row[1]}
        async with http.post(url, data=row[2], headers=headers) as answer:
            await answer.read()
        async with pool.connection() as connection:
            await connection.execute(COMPLETE, (row[0],))


async def run(dsn: str, url: str, slots: int) -> None:
    """So many workers, until SIGTERM ends the process: one that is cancelled in a query may go on."""
    async with (
        AsyncConnectionPool(dsn, min_size=20, max_size=20, kwargs={"autocommit": True}, timeout=120) as pool,
        session() as http,
    ):
        await asyncio.gather(*(work(pool, http, url) for _ in range(slots)))


if __name__ == "__main__":
    asyncio.run(obey(prepare=migrate, producer=producer, run=run))
