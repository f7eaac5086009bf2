"""How often a transaction of the relay waits for the database: what a network between the two costs."""

import asyncio
import select
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from relay.database import CONFLICTS, Database
from relay.store import Store
from tests.conftest import POOLER
from tests.faults.proxy import Proxy
from tests.store.jobs import LEASE_S, Jobs, claim, done

_PREPARED_AFTER = 6


@pytest.fixture
async def road(pooled: str) -> AsyncIterator[Proxy]:
    """The road to the database."""
    async with Proxy(int(str(conninfo_to_dict(pooled)["port"]))) as road:
        yield road


@pytest.fixture
async def store(road: Proxy, pooled: str, _roles: None) -> AsyncIterator[Store]:
    """A replica at the other end of the road, with one connection."""
    dsn = make_conninfo(pooled, user="relay_plain", host="127.0.0.1", port=road.port)
    async with Database(dsn, name="far", pool_size=1, prepared_statements=not POOLER) as database:
        yield Store(database, locked_by="far", lease_s=LEASE_S)


async def counted(road: Proxy, work: Callable[[], Awaitable[object]]) -> int:
    """The round trips of the last of some runs, by which its statements are prepared."""
    for _ in range(_PREPARED_AFTER):
        await work()
    before = road.round_trips
    await work()
    return road.round_trips - before


async def test_a_claim_is_one_round_trip(road: Proxy, store: Store, jobs: Jobs) -> None:
    await jobs.add_many(20)
    assert await counted(road, lambda: claim(store, free=1)) == 1


async def test_a_settle_is_one_round_trip_with_its_lane(road: Proxy, store: Store, jobs: Jobs) -> None:
    await jobs.add_many(20, "lane")
    running = await claim(store)

    async def work() -> None:
        settled = await store.settle([done(running.pop(), chain=True)])
        running.extend(settled.started)

    assert await counted(road, work) == 1


async def test_a_conflict_leaves_nothing_open_and_costs_one_more(road: Proxy, store: Store, jobs: Jobs) -> None:
    job_id = await jobs.add()
    [job] = await claim(store)

    async def work() -> None:
        with pytest.raises(CONFLICTS):
            await store.settle([done(job)], patient=False)

    async with jobs.connection.transaction():
        await jobs.change(job_id, "topic = 'held'")
        assert await counted(road, work) == 2
    await store.settle([done(job)])
    assert await jobs.statuses() == ["done"]


async def test_a_conflict_is_one_though_the_database_tells_it_before_the_pipeline_ends(
    store: Store, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica with much to do comes back late to a pipeline that it has not closed yet."""
    job_id = await jobs.add()
    [job] = await claim(store)
    close = psycopg.AsyncPipeline.__aexit__

    async def close_late(pipeline: psycopg.AsyncPipeline, *raised: Any) -> None:
        await asyncio.to_thread(select.select, [pipeline.pgconn.socket], [], [])
        await close(pipeline, *raised)

    monkeypatch.setattr(psycopg.AsyncPipeline, "__aexit__", close_late)
    async with jobs.connection.transaction():
        await jobs.change(job_id, "topic = 'held'")
        with pytest.raises(CONFLICTS):
            await store.settle([done(job)], patient=False)
    monkeypatch.undo()
    await store.settle([done(job)])
    assert await jobs.statuses() == ["done"]
