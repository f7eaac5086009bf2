"""`make bench`: the relay beside the textbook design and beside bare loops that only post, in one run.

CPU seconds come from the operating system, for the client and for PostgreSQL apart: on a machine that others
use too, time by the clock says little. Read the ratios; the figures belong to the machine they were made on.
"""

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import httpx
import psycopg

from relay.demo.nest import Nest
from relay.demo.postgres import Postgres
from relay.migrate import migrate
from tests.bench import cpu

PAYLOAD_BYTES = 500
IN_FLIGHT = 64
ROOT = Path(__file__).parents[2]
INSERT = """
INSERT INTO outbox.job (topic, destination, entity_key, payload)
SELECT 'bench', 'bench', CASE WHEN %(lanes)s > 0 THEN 'entity-' || (n %% %(lanes)s) END,
       to_json(repeat('x', %(bytes)s))
  FROM generate_series(1, %(jobs)s) AS n
"""
SECRET = "whsec_c2VjcmV0LWZvci10aGUtYmVuY2htYXJrLW9ubHk="
ENVIRONMENT = {**os.environ, "BENCH_SECRET": SECRET, "PYTHONPATH": str(ROOT)}
LEFT = "SELECT count(*) FROM outbox.job WHERE status <> 'done'"


@dataclass(frozen=True)
class Figures:
    """What one side used for `jobs` deliveries."""

    side: str
    jobs: int
    wall_s: float
    client_s: float
    postgres_s: float
    wal_bytes: int
    duplicates: int

    @property
    def client_ms(self) -> float:
        return 1000 * self.client_s / self.jobs

    @property
    def postgres_ms(self) -> float:
        return 1000 * self.postgres_s / self.jobs


class Bench:
    """One PostgreSQL with durable settings, one receiver, and the sides one after the other."""

    def __init__(self, nest: Nest, postgres: Postgres, receiver: subprocess.Popen[str], jobs: int) -> None:
        self._nest = nest
        self._postgres = postgres
        self._jobs = jobs
        self._dsn = postgres.create_database("bench")
        asyncio.run(migrate(self._dsn))
        assert receiver.stdout is not None
        self._url = f"http://127.0.0.1:{receiver.stdout.readline().strip()}/"

    def bare(self, client: str) -> Figures:
        """A loop that posts and has no database."""
        argv = ["-m", "tests.bench.bare", client, self._url, str(self._jobs), str(IN_FLIGHT), str(PAYLOAD_BYTES)]
        return self._measure(f"bare {client}", argv)

    def textbook(self) -> Figures:
        """One row claimed, one row completed."""
        self._fill(0)
        return self._measure("textbook", ["-m", "tests.bench.textbook", self._dsn, self._url, str(IN_FLIGHT)])

    def relay(self, side: str, lanes: int) -> Figures:
        """A replica with everything on; `lanes` 0 is unordered."""
        self._fill(lanes)
        config = self._nest.path / "relay.yaml"
        destination = {"url": self._url, "secrets": [{"env": "BENCH_SECRET"}], "max_in_flight": IN_FLIGHT}
        config.write_text(
            json.dumps(
                {"database": {"dsn": self._dsn}, "log": {"level": "warning"}, "destinations": {"bench": destination}}
            )
        )
        relay = ["-m", "relay", "-c", str(config)]
        subprocess.run(
            [sys.executable, *relay, "sync"], env=ENVIRONMENT, cwd=ROOT, stdout=subprocess.DEVNULL, check=True
        )
        return self._measure(side, [*relay, "run"], stops=True)

    def _fill(self, lanes: int) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            connection.execute("TRUNCATE outbox.job, outbox.attempt")
            connection.execute(INSERT, {"lanes": lanes, "bytes": PAYLOAD_BYTES - 2, "jobs": self._jobs})
            connection.execute("VACUUM ANALYZE outbox.job")
            connection.execute("CHECKPOINT")

    def _measure(self, side: str, argv: list[str], *, stops: bool = False) -> Figures:
        """Runs a side to its end; one that does not end by itself is stopped when no job is left."""
        assert self._postgres.pid is not None
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            wal, postgres_s, started_s = _wal(connection), cpu.tree_s(self._postgres.pid), time.monotonic()
            client = subprocess.Popen([sys.executable, *argv], env=ENVIRONMENT, cwd=ROOT)
            while stops and connection.execute(LEFT).fetchone() != (0,):
                time.sleep(0.1)
                assert client.poll() is None, f"{side} ended early"
            served_s = cpu.process_s(client.pid)
            if stops:
                client.terminate()
            _, status, usage = os.wait4(client.pid, 0)
            client.returncode = os.waitstatus_to_exitcode(status)
            assert client.returncode == 0, f"{side} failed"
            return Figures(
                side=side,
                jobs=self._jobs,
                wall_s=time.monotonic() - started_s,
                client_s=served_s if stops else usage.ru_utime + usage.ru_stime,
                postgres_s=cpu.tree_s(self._postgres.pid) - postgres_s,
                wal_bytes=_wal(connection) - wal,
                duplicates=self._arrived(side),
            )

    def _arrived(self, side: str) -> int:
        counts: dict[str, int] = httpx.get(self._url, trust_env=False).json()
        assert counts["keys"] == self._jobs, f"{side} delivered {counts['keys']} of {self._jobs}"
        return counts["requests"] - counts["keys"]


def _wal(connection: psycopg.Connection) -> int:
    row = connection.execute("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint").fetchone()
    assert row is not None
    return int(row[0])


def main() -> None:
    """Runs every side and prints the table; the last line is JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with Nest() as nest, Postgres(nest, tcp=True) as postgres:
        receiver = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.receiver", "0"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
        )  # fmt: skip
        try:
            bench = Bench(nest, postgres, receiver, arguments.jobs)
            figures = [
                bench.bare("aiohttp"),
                bench.bare("sender"),
                bench.textbook(),
                bench.relay("relay, unordered", 0),
                bench.relay("relay, one job a lane", arguments.jobs),
                bench.relay("relay, 20 lanes", 20),
            ]
        finally:
            receiver.communicate()
    _print(figures, as_json=arguments.json)


def _print(figures: list[Figures], *, as_json: bool) -> None:
    yardstick, textbook = figures[0], figures[2]
    print(f"\n{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
          f"{figures[0].jobs} jobs of {PAYLOAD_BYTES} bytes, {IN_FLIGHT} in flight\n")  # fmt: skip
    print(f"{'':24}{'jobs/s':>8}{'client ms':>11}{'vs bare':>9}{'PG ms':>8}{'textbook/PG':>13}{'WAL B':>8}{'twice':>7}")
    for each in figures:
        ratio = textbook.postgres_s / max(each.postgres_s, 0.001)
        postgres = f"{each.postgres_ms:8.3f}{ratio:12.1f}x{each.wal_bytes / each.jobs:8.0f}"
        print(f"{each.side:24}{each.jobs / each.wall_s:8.0f}{each.client_ms:11.3f}"
              f"{yardstick.client_s / each.client_s:8.2f}x{'' if each.side.startswith('bare') else postgres:29}"
              f"{each.duplicates:7}")  # fmt: skip
    if as_json:
        by_side = {each.side: each for each in figures}
        relay = by_side["relay, unordered"]
        print(
            json.dumps(
                {
                    "pg_cpu_vs_textbook": round(textbook.postgres_s / relay.postgres_s, 2),
                    "pg_cpu_vs_textbook_ordered": round(
                        textbook.postgres_s / by_side["relay, one job a lane"].postgres_s, 2
                    ),
                    "deliveries_per_cpu_s_vs_bare": round(yardstick.client_s / relay.client_s, 2),
                    "deliveries_per_cpu_s_vs_textbook": round(textbook.client_s / relay.client_s, 2),
                    "wal_bytes_per_job": round(relay.wal_bytes / relay.jobs),
                    "duplicates": sum(each.duplicates for each in figures),
                }
            )
        )


if __name__ == "__main__":
    main()
