"""A streaming standby of a test's PostgreSQL, and the DSN that finds whichever of the two takes writes."""

import asyncio
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg

from relay.demo.nest import NOBODY, Nest, is_root
from relay.demo.postgres import Postgres
from tests.conftest import MAJOR, OPTIONS
from tests.majors import binaries

_STREAMING = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = %s"


@dataclass
class Pair:
    """A primary, and the standby that follows it."""

    primary: Postgres
    standby: Postgres

    def dsn(self, database: str) -> str:
        """The DSN of `database` on whichever of the two is the primary."""
        hosts = f"127.0.0.1:{self.primary.port},127.0.0.1:{self.standby.port}"
        return f"postgresql://postgres@{hosts}/{database}?target_session_attrs=read-write"

    def fail_over(self) -> None:
        """The primary crashes and does not come back; the standby takes over."""
        self.primary.kill()
        with psycopg.connect(self.standby.dsn(), autocommit=True) as connection:
            connection.execute("SELECT pg_promote()")

    def cut(self) -> None:
        """The standby hears nothing more of its primary."""
        with psycopg.connect(self.standby.dsn(), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET primary_conninfo = ''")
            connection.execute("SELECT pg_reload_conf()")
        with psycopg.connect(self.primary.dsn(), autocommit=True) as connection:
            while connection.execute("SELECT count(*) FROM pg_stat_replication").fetchone() != (0,):
                pass


@contextmanager
def pair(*, synchronous: bool) -> Iterator[Pair]:
    """Both servers, streaming; with `synchronous` every commit that asks for it waits for the standby's disk."""
    # A crash of the primary must not forget what the standby has: these two keep their promises.
    options = {**OPTIONS, "fsync": "on", "full_page_writes": "on", "hot_standby": "on"}
    with Nest() as one, Nest() as two, Postgres(one, binaries=binaries(MAJOR), options=options, tcp=True) as primary:
        standby = Postgres(two, binaries=primary.binaries, options=options, tcp=True)
        _copy(primary, standby, two)
        standby.start(standby=True)
        try:
            wanted: Mapping[bool, str] = {True: "sync", False: "async"}
            with psycopg.connect(primary.dsn(), autocommit=True) as connection:
                if synchronous:
                    connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
                    connection.execute("SELECT pg_reload_conf()")
                while connection.execute(_STREAMING, (wanted[synchronous],)).fetchone() != (1,):
                    pass
            yield Pair(primary, standby)
        finally:
            standby.stop()


def _copy(primary: Postgres, standby: Postgres, nest: Nest) -> None:
    log = nest.path / "basebackup.log"
    copy = ["--pgdata", str(standby._home), "--write-recovery-conf", "--checkpoint=fast", "--no-sync"]
    argv = ["--dbname", f"host=127.0.0.1 port={primary.port} user=postgres", *copy]
    standby._home.mkdir(mode=0o700)
    if is_root():
        os.chown(standby._home, NOBODY, NOBODY)
    child = nest.start([str(primary.binaries / "pg_basebackup"), *argv], log=log, nobody=True)
    assert child.wait() == 0, log.read_text()
    nest.forget(child)


async def fail_over(pair: Pair) -> None:
    """`Pair.fail_over`, without holding up the test's loop."""
    await asyncio.to_thread(pair.fail_over)
