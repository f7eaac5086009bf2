"""A producer's login, a replica, and a receiver that shows the bytes of a request as they came."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest

from relay.demo.nest import Nest
from tests.conftest import Connection
from tests.fuzz.rows import Request, Sink, sequence
from tests.service.replica import Installation

LOGIN = "security_producer"


@dataclass
class Wire:
    """Where requests arrive, and all that did."""

    url: str = ""
    requests: list[Request] = field(default_factory=list)

    async def wait_for(self, *jobs: int) -> list[Request]:
        """The requests of these jobs, in this order."""
        async with asyncio.timeout(30):
            while not {*jobs} <= {sequence(each) for each in self.requests}:
                await asyncio.sleep(0.01)
        return [next(each for each in self.requests if sequence(each) == job) for job in jobs]


@pytest.fixture
async def wire() -> AsyncIterator[Wire]:
    """Answers 204 to everything."""
    found = Wire()
    server = await asyncio.get_running_loop().create_server(lambda: Sink(found.requests), "127.0.0.1", 0)
    found.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook?of=the-operator"
    async with server:
        yield found


@pytest.fixture(scope="session")
def _login(migrated: str) -> None:
    with psycopg.connect(migrated, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {LOGIN} LOGIN IN ROLE outbox_producer".encode())
        connection.execute(f"GRANT CREATE ON DATABASE relay TO {LOGIN}".encode())


@pytest.fixture
async def producer(database: str, _login: None) -> AsyncIterator[Connection]:
    """An application's connection, in autocommit. It may make schemas of its own, as many may."""
    async with await psycopg.AsyncConnection.connect(database, user=LOGIN, autocommit=True) as connection:
        yield connection


@pytest.fixture
async def installation(nest: Nest, tmp_path: Path, database: str) -> AsyncIterator[Installation]:
    """Processes on the shared, emptied database; whatever a test does, none of them may have logged a bug."""
    installation = Installation(nest, tmp_path, database)
    yield installation
    await installation.close()
