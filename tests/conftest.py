"""One PostgreSQL for each test process, with one migrated database that is emptied before every test."""

import os
from collections.abc import AsyncIterator, Iterator
from itertools import count

import psycopg
import pytest
from psycopg.rows import TupleRow

from relay.demo.nest import Nest
from relay.demo.postgres import Postgres
from relay.migrate import migrate
from tests.cli.pooler import pgbouncer
from tests.majors import binaries
from tests.receiver import Receiver

MAJOR = os.environ.get("RELAY_TEST_POSTGRES", "embedded")
OPTIONS = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "max_prepared_transactions": "10",
}

#: Whether the relay goes through a pooler in transaction mode, and how it hears of new jobs then: `listen` or `poll`.
POOLER = os.environ.get("RELAY_TEST_POOLER")

Connection = psycopg.AsyncConnection[TupleRow]


@pytest.fixture(scope="session")
def nest() -> Iterator[Nest]:
    """A folder and child processes that end with the session, and with a killed pytest too."""
    with Nest() as nest:
        yield nest


@pytest.fixture(scope="session")
def postgres(nest: Nest) -> Iterator[Postgres]:
    """The embedded one, or the major in RELAY_TEST_POSTGRES. A test that stops it starts it again."""
    with Postgres(nest, binaries=binaries(MAJOR), options=OPTIONS, tcp=True) as postgres:
        yield postgres


@pytest.fixture(scope="session")
async def template(postgres: Postgres) -> str:
    """The name of a migrated database that nobody connects to."""
    await migrate(postgres.create_database("template_relay"))
    return "template_relay"


@pytest.fixture(scope="session")
def migrated(postgres: Postgres, template: str) -> str:
    """The DSN of the database that the tests share."""
    return postgres.create_database("relay", template=template)


@pytest.fixture(scope="session")
def _pooler(nest: Nest, migrated: str) -> Iterator[str | None]:
    if not POOLER:
        yield None
        return
    with pgbouncer(nest, migrated, users=[f"relay_{role}" for role in ("plain", "repeatable_read", "hostile")]) as dsn:
        yield dsn


@pytest.fixture
async def database(migrated: str) -> str:
    """The DSN of a migrated database without jobs, attempts or destinations."""
    async with await psycopg.AsyncConnection.connect(migrated, autocommit=True) as connection:
        # A session that an earlier test left open fails this one with a sentence instead of a hang.
        await connection.execute("SET lock_timeout = '10s'")
        await connection.execute(
            "TRUNCATE outbox.job, outbox.attempt, outbox.destination, outbox.operation, outbox.sample RESTART IDENTITY"
        )
        await connection.execute("SELECT setval('outbox.idle', 0)")
    return migrated


@pytest.fixture
async def pooled(database: str, _pooler: str | None) -> str:
    """The DSN by which the relay reaches `database`: the same, or through the pooler of RELAY_TEST_POOLER."""
    return _pooler or database


@pytest.fixture
async def connection(database: str) -> AsyncIterator[Connection]:
    """A connection to `database`, in autocommit."""
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
        yield connection


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """A receiver that accepts everything until told otherwise."""
    async with Receiver() as receiver:
        yield receiver


@pytest.fixture(scope="session")
def _numbers() -> Iterator[int]:
    return count(1)


@pytest.fixture
def new_database(postgres: Postgres, _numbers: Iterator[int]) -> str:
    """The DSN of a database of this test's own, empty and not migrated."""
    return postgres.create_database(f"new_{next(_numbers)}")
