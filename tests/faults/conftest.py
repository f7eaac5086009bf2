"""Each fault has a PostgreSQL of its own; what was observed is printed at the end."""

from collections.abc import AsyncIterator, Callable, Iterator

import psycopg
import pytest

from relay.demo.nest import Nest
from relay.demo.postgres import Postgres
from relay.migrate import migrate
from tests.chaos.oracle import Verdict
from tests.conftest import MAJOR, OPTIONS
from tests.faults import namespace
from tests.faults.bench import Bench
from tests.faults.world import World, world
from tests.majors import binaries
from tests.receiver import Receiver

Report = Callable[..., None]
_OBSERVED = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Names the marker of the faults in the short form."""
    config.addinivalue_line("markers", "quick: also in the short form, for every change")


@pytest.fixture
def nest() -> Iterator[Nest]:
    """A folder and processes of this fault's."""
    namespace.enter()
    with Nest() as nest:
        yield nest


@pytest.fixture
def server(nest: Nest) -> Iterator[Postgres]:
    """A PostgreSQL that also listens where only the replicas look for it."""
    options = {**OPTIONS, "listen_addresses": "127.0.0.1,127.0.0.2"}
    with Postgres(nest, binaries=binaries(MAJOR), options=options, tcp=True) as server:
        yield server


@pytest.fixture
async def running(nest: Nest, server: Postgres) -> AsyncIterator[World]:
    """A world whose replicas reach the database at 127.0.0.2."""
    dsn = server.create_database("faults")
    async with world(nest, server, dsn, host="127.0.0.2") as running:
        yield running


@pytest.fixture
async def bench(nest: Nest, server: Postgres) -> AsyncIterator[Bench]:
    """Nothing is wrong yet."""
    dsn = server.create_database("faults")
    await migrate(dsn)
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection, Receiver() as receiver:
        await connection.execute("INSERT INTO outbox.destination (name) VALUES ('shop')")
        yield Bench(nest, dsn, connection, receiver)


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Report:
    """Keeps what was observed, for the end of the run."""
    observed = request.config.stash.setdefault(_OBSERVED, [])

    def keep(verdict: Verdict, recovery_s: float, within_s: float) -> None:
        observed.append(
            f"{request.node.name}: recovered in {recovery_s:.1f} s (bound {within_s:g} s); {verdict.jobs} jobs,"
            f" {verdict.lost} lost, {verdict.inversions} inversions, {verdict.duplicates} duplicates"
            f" (bound {verdict.in_flight_at_kills})"
        )

    return keep


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints what was observed."""
    for line in terminalreporter.config.stash.get(_OBSERVED, []):
        terminalreporter.write_line(line)
