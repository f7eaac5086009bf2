"""`outbox.enqueue_ordered`: ids of one entity in the order of commits, whoever else inserts."""

import asyncio

import pytest
from psycopg import AsyncConnection, errors

ENQUEUE = b"SELECT outbox.enqueue_ordered('order.paid', %s, '{\"n\": 1}', destination => 'billing')"


async def _enqueue(connection: AsyncConnection, entity_key: str) -> int:
    row = await (await connection.execute(ENQUEUE, (entity_key,))).fetchone()
    assert row is not None
    return int(row[0])


async def _is_waiting(connection: AsyncConnection, pid: int) -> bool:
    query = b"SELECT wait_event_type = 'Lock' AND wait_event = 'advisory' FROM pg_stat_activity WHERE pid = %s"
    while True:
        row = await (await connection.execute(query, (pid,))).fetchone()
        assert row is not None
        if row[0]:
            return True
        await asyncio.sleep(0)


async def test_a_second_transaction_of_the_entity_draws_its_id_after_the_first_has_committed(
    database: str, connection: AsyncConnection
) -> None:
    async with await AsyncConnection.connect(database) as first, await AsyncConnection.connect(database) as second:
        earlier = await _enqueue(first, "order-42")
        later = asyncio.ensure_future(_enqueue(second, "order-42"))
        assert await _is_waiting(connection, second.info.backend_pid)
        between = await _enqueue(connection, "order-43")
        await first.commit()
        assert earlier < between < await later
        await second.commit()


async def test_another_entity_does_not_wait(database: str, connection: AsyncConnection) -> None:
    async with await AsyncConnection.connect(database) as first:
        await _enqueue(first, "order-42")
        async with asyncio.timeout(10):
            await _enqueue(connection, "order-43")


async def test_a_rollback_lets_the_next_one_go_on(database: str) -> None:
    async with await AsyncConnection.connect(database) as first, await AsyncConnection.connect(database) as second:
        await _enqueue(first, "order-42")
        later = asyncio.ensure_future(_enqueue(second, "order-42"))
        await first.rollback()
        assert await later > 0


async def test_what_it_inserts_is_checked_like_any_other_row(connection: AsyncConnection) -> None:
    with pytest.raises(errors.CheckViolation, match="job_entity_key_is_1_to_512_bytes"):
        await _enqueue(connection, "k" * 513)


async def test_a_producer_may_call_it_and_nobody_else(connection: AsyncConnection) -> None:
    await connection.execute(b"SET ROLE outbox_producer")
    assert await _enqueue(connection, "order-42") > 0
    await connection.execute(b"SET ROLE outbox_reader")
    with pytest.raises(errors.InsufficientPrivilege):
        await _enqueue(connection, "order-42")
    await connection.execute(b"RESET ROLE")
