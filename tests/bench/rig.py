"""What the benchmarks of lanes stand on: one PostgreSQL with durable settings, receivers, and one relay process."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import psycopg

from relay.demo.nest import Nest
from relay.demo.postgres import Postgres
from relay.migrate import migrate

ROOT = Path(__file__).parents[2]
NAME = "bench"
ENVIRONMENT = {
    **os.environ,
    "BENCH_SECRET": "whsec_c2VjcmV0LWZvci10aGUtYmVuY2htYXJrLW9ubHk=",
    "PYTHONPATH": str(ROOT),
}
_REPLICAS = b"SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'relay %'"
_LEFT = b"SELECT count(*) FROM outbox.job WHERE status <> 'done'"


@contextmanager
def receiver(delay_ms: float) -> Iterator[str]:
    """A receiver that answers after `delay_ms`; its URL."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.receiver", str(delay_ms)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}/"
    finally:
        process.communicate()


class Rig:
    """A migrated database that is emptied between two measurements."""

    def __init__(self, nest: Nest, postgres: Postgres, database: str = "lanes") -> None:
        self._nest = nest
        self.dsn = postgres.create_database(database)
        asyncio.run(migrate(self.dsn))

    def connect(self) -> psycopg.Connection:
        """A connection of a superuser, in autocommit."""
        return psycopg.connect(self.dsn, autocommit=True)

    def empty(self, connection: psycopg.Connection) -> None:
        """No jobs, and nobody who subscribes."""
        connection.execute("TRUNCATE outbox.job, outbox.attempt, outbox.destination")

    def row(self, connection: psycopg.Connection, query: str, *parameters: object) -> tuple[Any, ...]:
        """The one row of a query."""
        [row] = connection.execute(query.encode(), parameters or None).fetchall()
        return row

    def receiver(self, delay_ms: float) -> AbstractContextManager[str]:
        """A receiver that answers after `delay_ms`; its URL."""
        return receiver(delay_ms)

    @contextmanager
    def relay(self, url: str, *, slots: int, **settings: object) -> Iterator[None]:
        """One replica that delivers to `url` with so many slots, and with these groups of settings."""
        with self.replica({NAME: {"url": url, "max_in_flight": slots}}, **settings):
            yield

    @contextmanager
    def replica(
        self, destinations: Mapping[str, Mapping[str, object]], **settings: object
    ) -> Iterator[subprocess.Popen[bytes]]:
        """One replica with these destinations, signed, and these groups of settings."""
        config = self._nest.path / "lanes.yaml"
        signed = {name: {"secrets": [{"env": "BENCH_SECRET"}], **own} for name, own in destinations.items()}
        config.write_text(
            json.dumps(
                {
                    "database": {"dsn": self.dsn},
                    "log": {"level": "error"},
                    "destinations": signed,
                    **settings,
                }
            )
        )
        argv = [sys.executable, "-m", "relay", "-c", str(config)]
        subprocess.run([*argv, "sync"], env=ENVIRONMENT, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
        # Its log is not to stand among the figures.
        replica = subprocess.Popen([*argv, "run"], env=ENVIRONMENT, cwd=ROOT, stdout=sys.stderr)
        try:
            with self.connect() as connection:
                while connection.execute(_REPLICAS).fetchone() == (0,):
                    assert replica.poll() is None, "the replica did not start"
                    time.sleep(0.02)
            yield replica
        finally:
            replica.terminate()
            assert replica.wait() == 0, "the replica failed"

    def drained(self, connection: psycopg.Connection) -> None:
        """Returns when every job is delivered."""
        while connection.execute(_LEFT).fetchone() != (0,):
            time.sleep(0.05)
