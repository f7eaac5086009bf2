"""`relay job cancel` with filters, while somebody else inserts, holds, claims, routes or settles the same jobs."""

import asyncio

import psycopg
import pytest

from relay import database as our_database
from relay.bulk import Selection
from relay.database import Database
from relay.waiting import Waiting
from tests.cli.conftest import RUNNING, Connection, Put, rows, until
from tests.cli.test_job_cancel import gate, is_waiting, settle, settle_lanes, status_of, waits_for

BLOCKED = {"status": "'blocked'"}


async def test_what_is_inserted_after_the_count_is_left_alone(put: Put, connection: Connection, database: str) -> None:
    counted = await put()
    async with Database(database, name="test", pool_size=1) as pool:
        waiting = Waiting(pool, actor="test")
        pinned = await waiting.pin(Selection(destination="billing"))
        later = await put(created_at="clock_timestamp()")
        assert (await waiting.cancel(pinned)).changed == 1
    assert await status_of(connection, counted, later) == ["discarded", "pending"]


async def test_a_row_that_somebody_holds_is_left_and_counted_and_the_others_are_done(
    put: Put, connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(our_database, "_LOCK_TIMEOUT_MS", 50)
    jobs = [await put(entity_key=f"order-{n}") for n in range(3)] + [await put() for _ in range(3)]
    async with (
        await psycopg.AsyncConnection.connect(database) as other,
        Database(database, name="test", pool_size=1) as pool,
    ):
        await other.execute("SELECT FROM outbox.job WHERE id = ANY (%s) FOR UPDATE", ([jobs[1], jobs[4]],))
        report = await Waiting(pool, actor="test").cancel(Selection(destination="billing"))
    assert (report.matched, report.changed, report.left) == (6, 4, 2)
    assert report.reasons == ["2 locked or changed by somebody else meanwhile; try again"]
    assert await status_of(connection, *jobs) == ["discarded", "pending", "discarded"] * 2


@pytest.mark.parametrize("entity_key", [None, "order-1"])
async def test_a_job_that_is_claimed_meanwhile_runs_and_is_counted(
    put: Put, connection: Connection, database: str, entity_key: str | None
) -> None:
    """The claim has the row and is not yet committed when the cancel comes: the cancel waits, and looks again."""
    job = await put(entity_key=entity_key)
    async with (
        await psycopg.AsyncConnection.connect(database) as claiming,
        Database(database, name="test", pool_size=1) as pool,
    ):
        await claiming.execute(
            "UPDATE outbox.job SET status = 'running', claims = 1, attempts = 1, locked_by = 'r1-0badcafe',"
            " locked_until = now() + interval '45 s' WHERE id = %s",
            (job,),
        )
        cancelling = asyncio.create_task(Waiting(pool, actor="test").cancel(Selection(destination="billing")))
        await until(lambda: waits_for(connection, claiming))
        await claiming.commit()
        report = await cancelling
    assert (report.matched, report.changed, report.left) == (1, 0, 1)
    assert await status_of(connection, job) == ["running"]
    assert await rows(connection, "SELECT FROM outbox.operation") == []


async def test_an_unrouted_job_that_is_routed_meanwhile_is_left(
    put: Put, connection: Connection, database: str
) -> None:
    job = await put(None)
    async with (
        await psycopg.AsyncConnection.connect(database) as routing,
        Database(database, name="test", pool_size=1) as pool,
    ):
        await routing.execute("UPDATE outbox.job SET destination = 'billing', status = 'pending'")
        cancelling = asyncio.create_task(Waiting(pool, actor="test").cancel(Selection(unrouted=True)))
        await until(lambda: waits_for(connection, routing))
        await routing.commit()
        assert (await cancelling).left == 1
    assert await status_of(connection, job) == ["pending"]


@pytest.mark.parametrize("lock", ["the holder", "only the cancelled row"])
async def test_a_settle_in_the_middle_of_a_cancel_leaves_no_job_asleep(
    put: Put, connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch, lock: str
) -> None:
    """The cancel stops after its update; the settle of the holder runs as far as it can; the cancel goes on.

    With the lock of the cancelled row alone the third job must be found asleep, or this test proves nothing.
    """
    right = lock == "the holder"
    if not right:
        nobody = b"SELECT '', '', 0, false WHERE %(destinations)s::text[] IS NULL OR %(entity_keys)s::text[] IS NULL"
        monkeypatch.setitem(our_database.SQL, "lock_lanes", nobody)
    head = await put(entity_key="order-1", **RUNNING)
    second = await put(entity_key="order-1", topic="a", **BLOCKED)
    third = await put(entity_key="order-1", **BLOCKED)
    async with (
        gate(connection),
        Database(database, name="test", pool_size=1) as pool,
        await psycopg.AsyncConnection.connect(database) as settling,
        await psycopg.AsyncConnection.connect(database, autocommit=True) as watching,
    ):
        await connection.execute("SELECT pg_advisory_lock(77)")
        cancelling = asyncio.create_task(Waiting(pool, actor="test").cancel(Selection(topic="a")))
        await until(lambda: waits_for(watching, connection))
        settled = asyncio.create_task(settle_and_commit(settling, head))
        await until(lambda: is_waiting(watching, settling))
        await connection.execute("SELECT pg_advisory_unlock(77)")
        assert (await cancelling).changed == 1
        await settled
    assert await status_of(connection, head, second) == ["done", "discarded"]
    assert await status_of(connection, third) == ["pending" if right else "blocked"]


async def settle_and_commit(settling: Connection, head: int) -> None:
    await settling.execute(*settle(head))
    await settling.execute(*settle_lanes())
    await settling.commit()
