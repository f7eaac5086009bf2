"""The textbook design on our own table: each worker claims one row and completes one row, a transaction each.

One UPDATE around SELECT … FOR UPDATE SKIP LOCKED LIMIT 1, one UPDATE by id, a shared pool of twenty connections.
No lease, no lane, no signature, no batch.
"""

import asyncio
import sys

import aiohttp
from psycopg_pool import AsyncConnectionPool

CLAIM = b"""
UPDATE outbox.job SET status = 'running', locked_by = 'textbook', locked_until = now() + interval '1 minute',
                      claims = claims + 1, attempts = attempts + 1
 WHERE id = (SELECT id FROM outbox.job
              WHERE status = 'pending' AND destination = 'bench' AND priority = 1 AND run_at <= now()
              ORDER BY run_at, id LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING id, idempotency_key, convert_to(payload::text, 'UTF8')
"""
COMPLETE = b"""
UPDATE outbox.job SET status = 'done', finished_at = now(), holds_lane = false, locked_by = NULL, locked_until = NULL
 WHERE id = %s
"""


async def main(dsn: str, url: str, workers: int) -> None:
    """Runs until the table has nothing due."""
    async with (
        AsyncConnectionPool(dsn, min_size=20, max_size=20, kwargs={"autocommit": True}, timeout=120) as pool,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
    ):

        async def work() -> None:
            while True:
                async with pool.connection() as connection:
                    row = await (await connection.execute(CLAIM)).fetchone()
                if row is None:
                    return
                headers = {"Content-Type": "application/json", "Idempotency-Key": row[1]}
                async with session.post(url, data=row[2], headers=headers) as answer:
                    await answer.read()
                async with pool.connection() as connection:
                    await connection.execute(COMPLETE, (row[0],))

        await asyncio.gather(*(work() for _ in range(workers)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
