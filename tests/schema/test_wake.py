"""When an INSERT tells the relays, and when it saves everybody the trouble."""

import pytest
from psycopg import errors

from tests.schema.rows import Connection, insert, rows, subscribe

IDLE = "SELECT setval('outbox.idle', 1)"


async def heard(listener: Connection, producer: Connection) -> list[str]:
    """Every notification since LISTEN: a last one, after them, marks the end."""
    await producer.execute("NOTIFY outbox, 'the end'")
    found: list[str] = []
    async for notification in listener.notifies(timeout=20):
        if notification.payload == "the end":
            return found
        found.append(notification.payload)
    raise AssertionError("the end was not heard")


@pytest.fixture
async def listener(connection: Connection) -> Connection:
    """A connection that listens as a replica does."""
    await connection.execute("LISTEN outbox")
    return connection


async def test_an_idle_relay_hears_for_which_destination(listener: Connection, producer: Connection) -> None:
    await listener.execute(IDLE)
    await insert(producer, destination="shop")
    assert await heard(listener, producer) == ["shop"]


async def test_every_copy_of_an_event_is_told(listener: Connection, producer: Connection) -> None:
    await listener.execute(IDLE)
    for name in ("one", "two", "three"):
        await subscribe(listener, name, "*")
    await insert(producer, destination=None)
    assert sorted(await heard(listener, producer)) == ["one", "three", "two"]


async def test_a_transaction_tells_each_destination_once(listener: Connection, producer: Connection) -> None:
    await listener.execute(IDLE)
    await producer.execute(
        "INSERT INTO outbox.job (destination, topic, payload)"
        " SELECT 'd' || n % 2, 'x', '{}' FROM generate_series(1, 100) AS n"
    )
    assert sorted(await heard(listener, producer)) == ["d0", "d1"]


async def test_busy_relays_are_told_nothing(listener: Connection, producer: Connection) -> None:
    await insert(producer)
    assert await heard(listener, producer) == []


async def test_a_scheduled_job_wakes_nobody(listener: Connection, producer: Connection) -> None:
    await listener.execute(IDLE)
    await insert(producer, run_at="2222-02-02")
    assert await heard(listener, producer) == []


async def test_a_job_due_in_the_past_wakes(listener: Connection, producer: Connection) -> None:
    await listener.execute(IDLE)
    await insert(producer, run_at="2001-01-01")
    assert await heard(listener, producer) == ["shop"]


async def test_an_unrouted_job_wakes_nobody(listener: Connection, producer: Connection) -> None:
    await listener.execute(IDLE)
    await insert(producer, destination=None)
    assert await heard(listener, producer) == []


async def test_a_rolled_back_job_wakes_nobody(listener: Connection, producer: Connection) -> None:
    await listener.execute(IDLE)
    async with producer.transaction(force_rollback=True):
        await insert(producer)
    assert await heard(listener, producer) == []


async def test_the_flag_is_seen_by_a_transaction_that_began_before_it(
    listener: Connection, producer: Connection
) -> None:
    async with producer.transaction():
        await producer.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await rows(producer, "SELECT id FROM outbox.job")
        await listener.execute(IDLE)
        await insert(producer)
    assert await heard(listener, producer) == ["shop"]


async def test_a_two_phase_commit_works_while_relays_are_busy(producer: Connection, connection: Connection) -> None:
    await subscribe(connection, "one", "*")
    await subscribe(connection, "two", "*")
    await producer.execute("BEGIN")
    await insert(producer, destination=None)
    await producer.execute("PREPARE TRANSACTION 'order-1'")
    assert await rows(connection, "SELECT destination FROM outbox.job") == []
    await producer.execute("COMMIT PREPARED 'order-1'")
    assert len(await rows(connection, "SELECT destination FROM outbox.job")) == 2


async def test_a_two_phase_commit_is_refused_by_postgresql_after_a_notify(
    producer: Connection, connection: Connection
) -> None:
    # Why replica.notify can be switched off: the flag then never rises.
    await connection.execute(IDLE)
    await producer.execute("BEGIN")
    await insert(producer)
    with pytest.raises(errors.FeatureNotSupported, match="NOTIFY"):
        await producer.execute("PREPARE TRANSACTION 'order-1'")


async def test_a_producer_needs_no_grant_on_the_flag(connection: Connection) -> None:
    await connection.execute("DROP ROLE IF EXISTS stranger")
    await connection.execute("CREATE ROLE stranger")
    async with connection.transaction(force_rollback=True):
        await connection.execute("GRANT USAGE ON SCHEMA outbox TO stranger")
        await connection.execute("GRANT INSERT ON outbox.job TO stranger")
        await connection.execute("GRANT SELECT (id) ON outbox.job TO stranger")
        await connection.execute("SET LOCAL ROLE stranger")
        await insert(connection)
        await insert(connection, destination=None)
    await connection.execute("DROP ROLE stranger")
