"""Faults of PostgreSQL: its processes, its role, its limits, and its locks."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import psycopg
import pytest
from psycopg import AsyncConnection

from relay.errors import RelayError
from tests.chaos.fleet import LEASE_S
from tests.faults.conftest import Report
from tests.faults.world import DATABASE_BACK_S, PATIENCE_S, World

pytestmark = pytest.mark.timeout(300)

Trouble = Callable[[World], Awaitable[None]]
_RELAYS = b"SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'relay %' AND pid <> pg_backend_pid()"


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
    async with running.connected() as connection:
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
        async with running.connected():
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


async def demoted(running: World) -> None:
    """It comes back as a standby, which answers and writes nothing, until it is promoted."""
    await asyncio.to_thread(running.server.stop)
    await asyncio.to_thread(running.server.start, standby=True)
    await running.says("database_away")
    await asyncio.sleep(3)  # each loop, and the listener, meets the standby
    async with running.connected() as connection:
        await connection.execute(b"SELECT pg_promote()")


async def out_of_connections(running: World) -> None:
    """The relay's connections are cut, and its role gets no new one."""
    async with running.connected() as connection:
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
    async with running.connected() as connection:
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
    pytest.param(postmaster_killed, marks=pytest.mark.quick), backend_killed, stopped_for_longer_than_a_lease, demoted,
    out_of_connections, vacuumed_full, reindexed, locked_for_five_seconds, dumped,
]  # fmt: skip


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_nothing_is_lost_when_postgresql_is(trouble: Trouble, running: World, report: Report) -> None:
    await running.flows()
    await trouble(running)
    recovery_s = await running.recovers(within_s=DATABASE_BACK_S)
    report(await running.judged(), recovery_s, DATABASE_BACK_S)
