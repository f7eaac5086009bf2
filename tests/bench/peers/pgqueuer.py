"""pgqueuer: an entrypoint over asyncpg and uvloop, with batches of as many jobs as run at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import uvloop
from pgqueuer import AsyncpgPoolDriver, PgQueuer, Queries
from pgqueuer.models import Job

from tests.bench.peers.post import post, session, told_to_stop
from tests.bench.peers.verbs import Put, obey


async def prepare(dsn: str) -> None:
    async with asyncpg.create_pool(dsn, min_size=1, max_size=1) as pool:
        await Queries(AsyncpgPoolDriver(pool)).install()


@asynccontextmanager
async def producer(dsn: str) -> AsyncIterator[Put]:
    async with asyncpg.create_pool(dsn, min_size=1, max_size=1) as pool:
        queries = Queries(AsyncpgPoolDriver(pool))

        async def put(jobs: int, payload: str) -> None:
            for start in range(0, jobs, 1000):
                count = min(1000, jobs - start)
                await queries.enqueue(["deliver"] * count, [payload.encode()] * count, [0] * count)

        yield put


async def run(dsn: str, url: str, slots: int) -> None:
    async with session() as http, asyncpg.create_pool(dsn, min_size=2, max_size=10) as pool:
        queue = PgQueuer(AsyncpgPoolDriver(pool))

        @queue.entrypoint("deliver")
        async def deliver(job: Job) -> None:
            await post(http, url, f"pgqueuer-{job.id}", job.payload or b"")

        working = asyncio.create_task(queue.run(batch_size=slots, max_concurrent_tasks=2 * slots))
        await told_to_stop()
        queue.shutdown.set()
        await working


if __name__ == "__main__":
    uvloop.run(obey(prepare=prepare, producer=producer, run=run))
