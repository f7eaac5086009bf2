"""Defaults that mean us ill, of the role and of the database."""

import asyncio

import pytest
from psycopg import AsyncConnection

from relay.demo.nest import Nest
from relay.demo.postgres import Postgres
from relay.errors import RelayError
from relay.migrate import migrate
from tests.faults.conftest import Report
from tests.faults.world import DATABASE_BACK_S, World, world

pytestmark = pytest.mark.timeout(300)

# Beside what tests/store does with each statement: the whole relay, its listener and its verbs under such a role.
HOSTILE = {
    "TimeZone": "Pacific/Chatham",
    "DateStyle": "SQL, DMY",
    "IntervalStyle": "sql_standard",
    "search_path": "nowhere",
    "standard_conforming_strings": "off",
    "client_encoding": "LATIN1",
    "default_transaction_isolation": "serializable",
    "default_transaction_read_only": "on",
    "default_transaction_deferrable": "on",
    "statement_timeout": "200ms",
    "lock_timeout": "1ms",
    "idle_in_transaction_session_timeout": "100ms",
    "bytea_output": "escape",
    "extra_float_digits": "-15",
    "transform_null_equals": "on",
    "escape_string_warning": "off",
}


@pytest.mark.quick
async def test_everything_works_with_hostile_defaults_of_the_role(nest: Nest, server: Postgres, report: Report) -> None:
    async with world(nest, server, server.create_database("faults"), defaults=HOSTILE) as running:
        await running.flows(300)
        await locked_for_a_second(running)
        # By the role's own limits, each statement that met the lock would have failed for want of time.
        assert running.fleet.events("database_away") == 0, running.last_words()
        recovery_s = await running.recovers(within_s=DATABASE_BACK_S)
        report(await running.judged(), recovery_s, DATABASE_BACK_S)


async def locked_for_a_second(running: World) -> None:
    """For longer than the role's limit on a statement, and shorter than the relay's."""
    async with await AsyncConnection.connect(running.dsn) as connection:
        await connection.execute(b"LOCK TABLE outbox.job IN ACCESS EXCLUSIVE MODE")
        await asyncio.sleep(1)


async def test_everything_works_in_a_database_in_latin1(nest: Nest, server: Postgres, report: Report) -> None:
    async with world(nest, server, await encoded(server, "LATIN1")) as running:
        await running.flows(300)
        recovery_s = await running.recovers(within_s=DATABASE_BACK_S)
        report(await running.judged(), recovery_s, DATABASE_BACK_S)


async def test_a_database_in_sql_ascii_is_refused_with_a_sentence_and_stays_empty(server: Postgres) -> None:
    dsn = await encoded(server, "SQL_ASCII")
    with pytest.raises(RelayError, match="SQL_ASCII"):
        await migrate(dsn)
    async with await AsyncConnection.connect(dsn) as connection:
        schemas = await connection.execute(b"SELECT count(*) FROM pg_namespace WHERE nspname = 'outbox'")
        assert await schemas.fetchone() == (0,)


async def encoded(server: Postgres, encoding: str) -> str:
    """An empty database in this encoding; its DSN."""
    async with await AsyncConnection.connect(server.dsn(), autocommit=True) as connection:
        await connection.execute(f"CREATE DATABASE faults TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'".encode())
    return server.dsn("faults")
