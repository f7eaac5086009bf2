"""A transaction says once, for all of its jobs, which trace it belongs to."""

import pytest

from tests.conftest import Connection

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
INSERT = "INSERT INTO outbox.job (topic, payload) VALUES ('t', '{}')"


async def set_local(connection: Connection, traceparent: str, tracestate: str = "") -> None:
    """As SET LOCAL does."""
    settings = "SELECT set_config('outbox.traceparent', %s, true), set_config('outbox.tracestate', %s, true)"
    await connection.execute(settings, (traceparent, tracestate))


async def contexts(connection: Connection) -> list[tuple[str | None, str | None]]:
    """What the rows hold, by id."""
    found = await connection.execute("SELECT traceparent, tracestate FROM outbox.job ORDER BY id")
    return [(row[0], row[1]) for row in await found.fetchall()]


@pytest.mark.parametrize(
    "statement",
    [
        INSERT,
        "INSERT INTO outbox.job (topic, payload, traceparent, tracestate) VALUES ('t', '{}', NULL, NULL)",
        "INSERT INTO outbox.job (topic, payload, run_at) VALUES ('t', '{}', now() + interval '1 day')",
        "SELECT outbox.enqueue_ordered('t', 'entity', '{}')",
    ],
    ids=["left out", "null", "scheduled", "enqueue_ordered"],
)
async def test_the_setting_is_the_context_of_a_job_that_brings_none(connection: Connection, statement: str) -> None:
    async with connection.transaction():
        await set_local(connection, TRACEPARENT, "congo=t61rcWkgMzE")
        await connection.execute(statement.encode())
    assert await contexts(connection) == [(TRACEPARENT, "congo=t61rcWkgMzE")]


async def test_copy_takes_the_setting_too(connection: Connection) -> None:
    async with connection.transaction(), connection.cursor() as cursor:
        await set_local(connection, TRACEPARENT)
        async with cursor.copy("COPY outbox.job (topic, payload) FROM STDIN") as copy:
            await copy.write("t\t{}\nt\t{}\n")
    assert await contexts(connection) == [(TRACEPARENT, None)] * 2


async def test_every_subscribers_copy_has_the_context(connection: Connection) -> None:
    await connection.execute("INSERT INTO outbox.destination (name, topics) VALUES ('a', '{t}'), ('b', '{t}')")
    async with connection.transaction():
        await set_local(connection, TRACEPARENT)
        await connection.execute(INSERT)
    assert await contexts(connection) == [(TRACEPARENT, None)] * 2


async def test_a_context_of_the_jobs_own_wins_and_takes_no_tracestate_from_the_setting(connection: Connection) -> None:
    async with connection.transaction():
        await set_local(connection, TRACEPARENT, "congo=t61rcWkgMzE")
        await connection.execute(
            "INSERT INTO outbox.job (topic, payload, traceparent) VALUES ('t', '{}', %s)", (OTHER,)
        )
    assert await contexts(connection) == [(OTHER, None)]


async def test_the_setting_ends_with_its_transaction(connection: Connection) -> None:
    async with connection.transaction():
        await set_local(connection, TRACEPARENT, "congo=t61rcWkgMzE")
    await connection.execute(INSERT)
    # A job that is normalised for another reason.
    await connection.execute("INSERT INTO outbox.job (topic, payload, run_at) VALUES ('t', '{}', 'tomorrow')")
    assert await contexts(connection) == [(None, None)] * 2


async def test_a_malformed_setting_fails_no_business_transaction(connection: Connection) -> None:
    async with connection.transaction():
        await set_local(connection, "nonsense \U0001f600" * 1000, "=")
        await connection.execute(INSERT)
    assert len(await contexts(connection)) == 1


async def test_without_the_setting_no_trigger_runs_for_it(connection: Connection) -> None:
    await connection.execute("SET track_functions = 'pl'")
    # Once set in this session, it is known and empty: the case that a pooled connection is in.
    async with connection.transaction():
        await set_local(connection, TRACEPARENT)
    plan = "EXPLAIN (ANALYZE, FORMAT JSON) INSERT INTO outbox.job (topic, destination, payload) VALUES ('t', 'd', '{}')"
    found = await connection.execute(plan.encode())
    [[[explained]]] = await found.fetchall()
    assert [trigger["Trigger Name"] for trigger in explained["Triggers"]] == []
