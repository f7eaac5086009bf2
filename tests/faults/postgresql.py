"""Faults of PostgreSQL: its processes, its disk, its limits, its locks, and defaults that mean us ill."""

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import AsyncConnection

from relay.demo.nest import NOBODY, Nest
from relay.demo.postgres import Postgres
from relay.errors import RelayError
from tests.chaos.fleet import LEASE_S
from tests.faults.conftest import Report
from tests.faults.namespace import run
from tests.faults.world import DATABASE_BACK_S, PATIENCE_S, World, world

pytestmark = pytest.mark.timeout(300)

Trouble = Callable[[World], Awaitable[None]]
_RELAYS = b"SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'relay %' AND pid <> pg_backend_pid()"


@asynccontextmanager
async def connected(running: World) -> AsyncIterator[AsyncConnection]:
    """A connection in autocommit."""
    async with await AsyncConnection.connect(running.dsn, autocommit=True) as connection:
        yield connection


async def postmaster_killed(running: World) -> None:
    """Its children notice and end by themselves; a new one waits for that."""
    server = running.server
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    await asyncio.to_thread(server.kill)
    for _ in range(50):
        try:
            return await asyncio.to_thread(server.start)
        except RelayError:  # while a backend of the old one still holds the shared memory
            await asyncio.sleep(0.2)
    raise AssertionError(f"PostgreSQL does not start again: {server}")


async def backend_killed(running: World) -> None:
    """PostgreSQL trusts its shared memory no more: it ends every session and recovers."""
    async with connected(running) as connection:
        [[pid], *_] = await (await connection.execute(_RELAYS)).fetchall()
        os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(psycopg.OperationalError):
            await connection.execute(b"SELECT pg_sleep(60)")
    async with asyncio.timeout(PATIENCE_S):
        while not await answers(running):
            await asyncio.sleep(0.1)


async def answers(running: World) -> bool:
    """Whether the database takes connections."""
    try:
        async with connected(running):
            return True
    except psycopg.OperationalError:
        return False


async def stopped_for_longer_than_a_lease(running: World) -> None:
    """Every process of the server stands still; the kernel goes on to acknowledge what it is sent."""
    assert running.server.pid is not None
    pids = [running.server.pid, *children(running.server.pid)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    await asyncio.sleep(LEASE_S + 3)
    for pid in reversed(pids):
        os.kill(pid, signal.SIGCONT)


def children(pid: int) -> list[int]:
    """The process ids of a process's children."""
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def out_of_connections(running: World) -> None:
    """The relay's connections are cut, and its role gets no new one."""
    async with connected(running) as connection:
        await connection.execute(b"ALTER ROLE relay_faults CONNECTION LIMIT 0")
        await connection.execute(b"SELECT pg_terminate_backend(pid) FROM (" + _RELAYS + b") relays")
        await running.says("database_away")
        await asyncio.sleep(5)
        await connection.execute(b"ALTER ROLE relay_faults CONNECTION LIMIT -1")


async def vacuumed_full(running: World) -> None:
    await maintained(running, b"VACUUM FULL outbox.job")


async def reindexed(running: World) -> None:
    await maintained(running, b"REINDEX TABLE outbox.job")


async def locked_for_five_seconds(running: World) -> None:
    """As a migration of somebody's that rewrites the table."""
    async with await AsyncConnection.connect(running.dsn) as connection:
        await connection.execute(b"LOCK TABLE outbox.job IN ACCESS EXCLUSIVE MODE")
        await asyncio.sleep(5)


async def maintained(running: World, statement: bytes) -> None:
    """The statement, ten times in a row, each of which holds everybody off."""
    async with connected(running) as connection:
        for _ in range(10):
            await connection.execute(statement)
            await running.flows(5)


async def dumped(running: World) -> None:
    """pg_dump, three times, while everything goes on."""
    for _ in range(3):
        argv = (str(running.server.binaries / "pg_dump"), "--schema=outbox", running.dsn)
        dump = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.DEVNULL)
        assert await dump.wait() == 0
        await running.flows(20)


TROUBLES = [
    postmaster_killed, backend_killed, stopped_for_longer_than_a_lease, out_of_connections,
    vacuumed_full, reindexed, locked_for_five_seconds, dumped,
]  # fmt: skip


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_nothing_is_lost_when_postgresql_is(trouble: Trouble, running: World, report: Report) -> None:
    await running.flows()
    await trouble(running)
    recovery_s = await running.recovers(within_s=DATABASE_BACK_S)
    report(await running.judged(), recovery_s, DATABASE_BACK_S)


@pytest.fixture
def disk(nest: Nest) -> Path:
    """A disk of 64 MiB that belongs to the server's user; it goes with this process's mounts."""
    disk = nest.path / "disk"
    disk.mkdir()
    run("mount", "-t", "tmpfs", "-o", f"size=64m,uid={NOBODY},gid={NOBODY},mode=700", "tmpfs", str(disk))
    return disk


async def test_nothing_is_lost_when_the_disk_of_the_jobs_is_full(disk: Path, running: World, report: Report) -> None:
    async with connected(running) as connection:
        await connection.execute(f"CREATE TABLESPACE small LOCATION '{disk}'".encode())
        await connection.execute(b"ALTER TABLE outbox.job SET TABLESPACE small")
        await connection.execute(b"ALTER TABLE outbox.attempt SET TABLESPACE small")
    await running.flows()
    fill(disk / "ballast")
    await running.says("database_away")
    (disk / "ballast").unlink()
    recovery_s = await running.recovers(within_s=DATABASE_BACK_S)
    report(await running.judged(), recovery_s, DATABASE_BACK_S)
    await asyncio.to_thread(running.server.stop)
    run("umount", str(disk))


async def test_nothing_is_lost_when_the_disk_of_the_log_is_full(disk: Path, running: World, report: Report) -> None:
    await running.flows()
    server = running.server
    await asyncio.to_thread(server.stop)
    log = server._home / "pg_wal"
    run("cp", "-a", str(log), str(disk / "log"))
    shutil.rmtree(log)
    log.symlink_to(disk / "log")
    await asyncio.to_thread(server.start)
    await running.flows()
    fill(disk / "ballast")
    # It needs a new segment, finds no room for it, and ends itself: what it cannot log it must not do.
    with pytest.raises(psycopg.OperationalError):
        await switched(running)
    (disk / "ballast").unlink()
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)
    recovery_s = await running.recovers(within_s=DATABASE_BACK_S)
    report(await running.judged(), recovery_s, DATABASE_BACK_S)
    await asyncio.to_thread(server.stop)
    run("umount", str(disk))


async def switched(running: World) -> None:
    """Begins one segment of the log after the other."""
    async with connected(running) as connection:
        while True:
            await connection.execute(b"SELECT pg_logical_emit_message(false, 'fault', ''), pg_switch_wal()")


def fill(file: Path) -> None:
    """Writes until nothing more goes in."""
    with file.open("wb", buffering=0) as ballast:
        try:
            while ballast.write(b"\0" * 8192):
                pass
        except OSError:
            return


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


async def test_everything_works_with_hostile_defaults_of_the_role(nest: Nest, server: Postgres, report: Report) -> None:
    async with world(nest, server, server.create_database("faults"), defaults=HOSTILE) as running:
        await running.flows(300)
        recovery_s = await running.recovers(within_s=DATABASE_BACK_S)
        report(await running.judged(), recovery_s, DATABASE_BACK_S)


async def test_everything_works_in_a_database_in_latin1(nest: Nest, server: Postgres, report: Report) -> None:
    async with await AsyncConnection.connect(server.dsn(), autocommit=True) as connection:
        await connection.execute(b"CREATE DATABASE faults TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
    async with world(nest, server, server.dsn("faults")) as running:
        await running.flows(300)
        recovery_s = await running.recovers(within_s=DATABASE_BACK_S)
        report(await running.judged(), recovery_s, DATABASE_BACK_S)
