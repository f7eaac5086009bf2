"""faststream-outbox: a subscriber that handles rows in place, asyncpg, terminal deletes flushed in batches."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from faststream_outbox import OutboxBroker, make_outbox_table
from faststream_outbox.annotations import OutboxMessage
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from tests.bench.peers.post import post, session, told_to_stop
from tests.bench.peers.verbs import Put, obey

METADATA = MetaData()
TABLE = make_outbox_table(METADATA, table_name="outbox")


def engine(dsn: str, pool_size: int = 5) -> AsyncEngine:
    return create_async_engine(dsn.replace("postgresql://", "postgresql+asyncpg://"), pool_size=pool_size)


async def prepare(dsn: str) -> None:
    async with engine(dsn).begin() as connection:
        await connection.run_sync(METADATA.create_all)


@asynccontextmanager
async def producer(dsn: str) -> AsyncIterator[Put]:
    source = engine(dsn)
    outbox = OutboxBroker(source, outbox_table=TABLE)

    async def put(jobs: int, payload: str) -> None:
        for start in range(0, jobs, 1000):
            async with source.begin() as connection:
                bodies = [payload.encode()] * min(1000, jobs - start)
                await outbox.publish_batch(*bodies, queue="bench", session=connection)

    yield put
    await source.dispose()


async def run(dsn: str, url: str, slots: int) -> None:
    # It refuses to start without a connection for each worker, and one to fetch.
    outbox = OutboxBroker(engine(dsn, slots + 6), outbox_table=TABLE, logger=None)
    async with session() as http:

        @outbox.subscriber(
            "bench",
            max_workers=slots,
            fetch_batch_size=slots,
            min_fetch_interval=0.05,
            terminal_flush_batch_size=slots,
        )
        async def deliver(body: bytes, message: OutboxMessage) -> None:
            await post(http, url, f"faststream-{message.raw_message.id}", body)

        async with outbox:
            await outbox.start()
            await told_to_stop()


if __name__ == "__main__":
    asyncio.run(obey(prepare=prepare, producer=producer, run=run))
