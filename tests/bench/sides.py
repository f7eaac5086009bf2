"""The systems that deliver jobs, each obeying the verbs of `tests.bench.peers.verbs` in a database of its own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from relay.demo.nest import Nest
from relay.demo.postgres import Postgres
from tests.bench.rig import ENVIRONMENT, ROOT

SLOTS = 64
REQUIREMENTS = Path(__file__).parent / "peers/requirements.txt"
# A server that waits for the disk. Checkpoints come when the benchmark wants them, not when it happens to last longer.
OPTIONS = {
    "shared_preload_libraries": "pg_stat_statements",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "1h",
    "max_connections": "300",
}
_OUR_LEFT = "SELECT count(*) FROM outbox.job WHERE status <> 'done'"
_TEXTBOOKS_LEFT = "SELECT count(*) FROM textbook.job WHERE status <> 'done'"


@dataclass(frozen=True)
class Side:
    """One system: the module that obeys, the query that tells how many jobs are not delivered, and their table."""

    name: str
    module: str
    left: str = _OUR_LEFT
    table: str = "outbox.job"
    environment: Mapping[str, str] = field(default_factory=dict)
    peer: bool = False


RELAY = Side("relay, unordered", "ours")
ONE_A_LANE = Side("relay, one job a lane", "ours", environment={"BENCH_LANES": "each"})
TWENTY_LANES = Side("relay, 20 lanes", "ours", environment={"BENCH_LANES": "20"})
TEXTBOOK = Side("textbook, our table", "textbook", environment={"BENCH_TABLE": "ours"})
LEAN_TEXTBOOK = Side("textbook, its own table", "textbook", _TEXTBOOKS_LEFT, "textbook.job")
PEERS = (
    Side("pgqueuer", "peers.pgqueuer", "SELECT count(*) FROM pgqueuer", peer=True),
    Side("faststream-outbox", "peers.faststream", "SELECT count(*) FROM outbox", peer=True),
    Side(
        "procrastinate",
        "peers.procrastinate",
        "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')",
        peer=True,
    ),
)


def peers_python() -> str:
    """The interpreter of the peers' own environment in `.cache/peers`, made at first use."""
    python = ROOT / ".cache/peers/bin/python"
    ready = ROOT / ".cache/peers/.ready"
    if not ready.exists() or ready.stat().st_mtime < REQUIREMENTS.stat().st_mtime:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(python.parents[1])], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--require-hashes", "-r", str(REQUIREMENTS)], check=True)
        ready.touch()
    return str(python)


class Stage:
    """One side in a fresh database, with what it takes to fill it, start it and look at it."""

    def __init__(self, nest: Nest, postgres: Postgres, side: Side) -> None:
        self.side = side
        self._nest = nest
        self.database = f"side_{time.monotonic_ns()}"
        self.dsn = postgres.create_database(self.database)
        self._python = peers_python() if side.peer else sys.executable
        self.environment = {**ENVIRONMENT, "BENCH_HOME": str(nest.path), **side.environment}
        self.obey("prepare")

    def argv(self, verb: str, *arguments: object) -> list[str]:
        """The command line of a verb."""
        return [self._python, "-m", f"tests.bench.{self.side.module}", verb, self.dsn, *map(str, arguments)]

    def obey(self, verb: str, *arguments: object) -> None:
        """Runs a verb to its end."""
        subprocess.run(self.argv(verb, *arguments), env=self.environment, cwd=ROOT, check=True)

    def connect(self) -> psycopg.Connection:
        """A connection in autocommit of a superuser that pg_stat_statements keeps apart from the side's own."""
        return psycopg.connect(self.dsn, autocommit=True, user="watcher")

    @contextmanager
    def running(self, url: str, slots: int = SLOTS, *, warm_up: int = 4) -> Iterator[subprocess.Popen[bytes]]:
        """The side's process, once it has delivered `warm_up` times its slots, and has nothing to do."""
        self.obey("insert", warm_up * slots, 500)
        log = self._nest.path / f"{self.database}.log"
        process = self._nest.start(self.argv("run", url, slots), env=self.environment, log=log)
        try:
            with self.connect() as connection:
                self.drained(connection, process)
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            code = process.wait()
            self._nest.forget(process)
        assert code in {0, -signal.SIGTERM}, f"{self.side.name} failed with {code}: {log.read_text()[-2000:]}"

    def drained(self, connection: psycopg.Connection, process: subprocess.Popen[bytes]) -> None:
        """Returns when every job is delivered and recorded."""
        while connection.execute(self.side.left.encode()).fetchone() != (0,):
            assert process.poll() is None, f"{self.side.name} ended early"
            time.sleep(0.02)


@contextmanager
def watched(nest: Nest, *, core: int | None = None) -> Iterator[Postgres]:
    """A durable PostgreSQL that counts statements and has a role for whoever watches, on one `core` where named."""
    with Postgres(nest, tcp=True, options=OPTIONS) as postgres:
        # What is in template1 is in every database that is made.
        with psycopg.connect(postgres.dsn("template1"), autocommit=True) as connection:
            connection.execute("CREATE ROLE watcher SUPERUSER LOGIN")
            connection.execute("CREATE EXTENSION pg_stat_statements")
        if core is not None:
            assert postgres.pid is not None
            for child in (postgres.pid, *_children(postgres.pid)):
                with suppress(ProcessLookupError):  # one may have ended meanwhile
                    os.sched_setaffinity(child, {core})  # those that come later inherit it
        yield postgres


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
