"""Login roles, one in each of the roles that the schema makes, and connections as them."""

import socket
from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest

from relay.demo.postgres import Postgres
from tests.schema.rows import Connection

LOGINS = {"schema_producer": "outbox_producer", "schema_relay": "outbox_relay", "schema_reader": "outbox_reader"}


@pytest.fixture(scope="session", autouse=True)
def _logins(migrated: str) -> None:
    with psycopg.connect(migrated, autocommit=True) as connection:
        for login, role in LOGINS.items():
            connection.execute(f"CREATE ROLE {login} LOGIN IN ROLE {role}".encode())


@pytest.fixture
async def producer(database: str) -> AsyncIterator[Connection]:
    """An application's connection to `database`, in autocommit."""
    async with await psycopg.AsyncConnection.connect(database, user="schema_producer", autocommit=True) as connection:
        yield connection


@pytest.fixture
async def replica(database: str) -> AsyncIterator[Connection]:
    """A relay's connection to `database`, in autocommit."""
    async with await psycopg.AsyncConnection.connect(database, user="schema_relay", autocommit=True) as connection:
        yield connection


@pytest.fixture
async def viewer(database: str) -> AsyncIterator[Connection]:
    """A viewer's connection to `database`, in autocommit."""
    async with await psycopg.AsyncConnection.connect(database, user="schema_reader", autocommit=True) as connection:
        yield connection


@pytest.fixture
def unused_port() -> Iterator[int]:
    """A TCP port on 127.0.0.1 that is taken but not listened at: it refuses."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield int(taken.getsockname()[1])


@pytest.fixture
def copy(postgres: Postgres, template: str, _numbers: Iterator[int]) -> str:
    """The DSN of a migrated database of this test's own."""
    return postgres.create_database(f"copy_{next(_numbers)}", template=template)
