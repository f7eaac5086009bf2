"""Disks of PostgreSQL that are full: that of the jobs, and that of its log."""

import asyncio
import shutil
from pathlib import Path

import psycopg
import pytest

from relay.demo.nest import NOBODY, Nest
from tests.faults.conftest import Report
from tests.faults.namespace import run
from tests.faults.world import DATABASE_BACK_S, World

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def disk(nest: Nest) -> Path:
    """A disk of 64 MiB that belongs to the server's user; it goes with this process's mounts."""
    disk = nest.path / "disk"
    disk.mkdir()
    run("mount", "-t", "tmpfs", "-o", f"size=64m,uid={NOBODY},gid={NOBODY},mode=700", "tmpfs", str(disk))
    return disk


async def test_nothing_is_lost_when_the_disk_of_the_jobs_is_full(disk: Path, running: World, report: Report) -> None:
    async with running.connected() as connection:
        await connection.execute(f"CREATE TABLESPACE small LOCATION '{disk}'".encode())
        await connection.execute(b"ALTER TABLE outbox.job SET TABLESPACE small")
        await connection.execute(b"ALTER TABLE outbox.attempt SET TABLESPACE small")
    await running.flows()
    async with running.connected() as connection, connection.transaction():
        # What this could still see makes no room, and there is enough to do for a job without room to come.
        await connection.execute(b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await connection.execute(b"SELECT 1")
        await backlog(running)
        fill(disk / "ballast")
        await running.says("database_away")
        (disk / "ballast").unlink()
    recovery_s = await running.recovers(within_s=DATABASE_BACK_S)
    report(await running.judged(), recovery_s, DATABASE_BACK_S)
    await asyncio.to_thread(running.server.stop)
    run("umount", str(disk))


async def backlog(running: World) -> None:
    """Five hundred jobs for each destination."""
    async with running.connected() as connection:
        await connection.execute(
            b"INSERT INTO outbox.job (topic, payload) SELECT 'event', '{}' FROM generate_series(1, 500)"
        )


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
    async with running.connected() as connection:
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
