"""procrastinate: an async task, one worker with a concurrency, LISTEN on, jobs deleted when they succeed."""

import asyncio
import sys

from procrastinate import App, PsycopgConnector

from tests.bench.peers.post import post, session


def app(dsn: str, slots: int = 1) -> App:
    # A worker with a concurrency above its pool's size would wait for connections.
    return App(connector=PsycopgConnector(conninfo=dsn, min_size=4, max_size=max(4, min(20, slots))))


async def prepare(dsn: str) -> None:
    async with app(dsn).open_async() as opened:
        await opened.schema_manager.apply_schema_async()


async def insert(dsn: str, jobs: int, payload: str) -> None:
    async with app(dsn).open_async() as opened:
        deliver = opened.configure_task("deliver", queue="bench", allow_unknown=True)
        for start in range(0, jobs, 1000):
            numbers = range(start, min(jobs, start + 1000))
            await deliver.batch_defer_async(*({"payload": payload} for _ in numbers))


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
    verb, dsn, *rest = sys.argv[1:]
    if verb == "prepare":
        asyncio.run(prepare(dsn))
    elif verb == "insert":
        asyncio.run(insert(dsn, int(rest[0]), rest[1]))
    else:
        asyncio.run(run(dsn, rest[0], int(rest[1])))
