"""procrastinate: an async task, one worker with a concurrency, LISTEN on, jobs deleted when they succeed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from procrastinate import App, PsycopgConnector

from tests.bench.peers.post import post, session
from tests.bench.peers.verbs import Put, obey


def app(dsn: str, slots: int = 1) -> App:
    # A worker with a concurrency above its pool's size would wait for connections.
    return App(connector=PsycopgConnector(conninfo=dsn, min_size=4, max_size=max(4, min(20, slots))))


async def prepare(dsn: str) -> None:
    async with app(dsn).open_async() as opened:
        await opened.schema_manager.apply_schema_async()


@asynccontextmanager
async def producer(dsn: str) -> AsyncIterator[Put]:
    async with app(dsn).open_async() as opened:
        deliver = opened.configure_task("deliver", queue="bench", allow_unknown=True)

        async def put(jobs: int, payload: str) -> None:
            for start in range(0, jobs, 1000):
                numbers = range(start, min(jobs, start + 1000))
                await deliver.batch_defer_async(*({"payload": payload} for _ in numbers))

        yield put


async def run(dsn: str, url: str, slots: int) -> None:
    app_ = app(dsn, slots)
    async with session() as http:

        @app_.task(name="deliver", queue="bench", pass_context=True)
        async def deliver(context, *, payload):  # type: ignore[no-untyped-def]
            await post(http, url, f"procrastinate-{context.job.id}", payload.encode())

        async with app_.open_async():
            await app_.run_worker_async(
                concurrency=slots, delete_jobs="successful", install_signal_handlers=True, shutdown_graceful_timeout=5
            )


if __name__ == "__main__":
    asyncio.run(obey(prepare=prepare, producer=producer, run=run))
