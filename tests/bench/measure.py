"""What a number of deliveries costs a side: CPU of the client and of PostgreSQL apart, statements, pages, log, garbage.

Every side is measured alike. Its process has started, has opened its connections by delivering a few jobs, and is
stopped (SIGSTOP) while the jobs are inserted; from SIGCONT on the operating system's count of its CPU seconds is
taken, until the last job is delivered and recorded. What it took to import and to start is in no side's figures.
"""

import signal
import subprocess
import sys
import time
from dataclasses import dataclass

import httpx
import psycopg

from relay.demo.nest import Nest
from relay.demo.postgres import Postgres
from tests.bench import cpu
from tests.bench.rig import ENVIRONMENT, ROOT
from tests.bench.sides import SLOTS, Side, Stage

_USED = """
SELECT coalesce(sum(s.calls), 0)::bigint, coalesce(sum(s.shared_blks_hit + s.shared_blks_read), 0)::bigint,
       pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint
  FROM pg_stat_statements s
 WHERE s.dbid = (SELECT d.oid FROM pg_database d WHERE d.datname = %s) AND s.userid <> 'watcher'::regrole
"""
# An update or a delete leaves a dead version behind.
_DEAD = "SELECT coalesce(sum(n_tup_upd + n_tup_del), 0)::bigint FROM pg_stat_user_tables"
_CLIENTS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


@dataclass(frozen=True)
class Figures:
    """What one side used for `jobs` deliveries; nothing of a database where it has none."""

    side: str
    jobs: int
    wall_s: float
    client_s: float
    postgres_s: float = 0.0
    statements: int = 0
    buffers: int = 0
    wal_bytes: int = 0
    dead: int = 0
    duplicates: int = 0

    @property
    def client_ms(self) -> float:
        """CPU time of the client for each job."""
        return 1000 * self.client_s / self.jobs

    @property
    def postgres_ms(self) -> float:
        """CPU time of PostgreSQL for each job."""
        return 1000 * self.postgres_s / self.jobs


class Bench:
    """One PostgreSQL, one receiver, and the sides one after the other."""

    def __init__(self, nest: Nest, postgres: Postgres, url: str) -> None:
        self._nest = nest
        self._postgres = postgres
        self._url = url

    def bare(self, client: str, jobs: int, payload_bytes: int) -> Figures:
        """A loop that posts and has no database."""
        arguments = map(str, (self._url, jobs, SLOTS, payload_bytes))
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.bare", client, *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT, cwd=ROOT,
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        self._arrived()
        before_s, started_s = cpu.process_s(process.pid), time.monotonic()
        process.stdin.write("go\n")
        process.stdin.flush()
        assert process.stdout.readline() == "done\n"
        figures = Figures(f"bare {client}", jobs, time.monotonic() - started_s, cpu.process_s(process.pid) - before_s)
        process.communicate()
        assert self._arrived() == (jobs, jobs)
        return figures

    def deliveries(self, side: Side, jobs: int, payload_bytes: int, *, checkpoint: bool = False) -> Figures:
        """Delivers `jobs`, with a checkpoint between insert and delivery where asked: pages are logged whole then."""
        stage = Stage(self._nest, self._postgres, side)
        with stage.connect() as connection:
            with stage.running(self._url) as process:
                process.send_signal(signal.SIGSTOP)
                self._arrived()
                stage.obey("insert", jobs, payload_bytes)
                connection.execute("ANALYZE")
                if checkpoint:
                    connection.execute("CHECKPOINT")
                [dead] = _row(connection, _DEAD)
                used = _row(connection, _USED, stage.database)
                meter = cpu.Meter(self._postgres, [process])
                process.send_signal(signal.SIGCONT)
                requests, keys = self._all_arrived(side, jobs, process)
                stage.drained(connection, process)
                spent = meter.spent()
                statements, buffers, wal = (
                    after - before for after, before in zip(_row(connection, _USED, stage.database), used, strict=True)
                )
            # Sessions tell what they changed by the time they end.
            while _row(connection, _CLIENTS) != (0,):
                time.sleep(0.02)
            [left_dead] = _row(connection, _DEAD)
        return Figures(
            side.name, jobs, spent.wall_s, spent.client_s, spent.postgres_s, statements, buffers, wal,
            left_dead - dead, requests - keys,
        )  # fmt: skip

    def _all_arrived(self, side: Side, jobs: int, process: subprocess.Popen[bytes]) -> tuple[int, int]:
        """Waits for the receiver, not for the database, which would count as the side's; requests and keys."""
        while (counts := self._arrived(path="count"))[1] < jobs:
            assert process.poll() is None, f"{side.name} ended early"
            time.sleep(0.05)
        return counts

    def _arrived(self, path: str = "") -> tuple[int, int]:
        counts: dict[str, int] = httpx.get(self._url + path, trust_env=False).json()
        return counts["requests"], counts["keys"]


def _row(connection: psycopg.Connection, query: str, *parameters: object) -> tuple[int, ...]:
    [row] = connection.execute(query.encode(), parameters or None).fetchall()
    return row
