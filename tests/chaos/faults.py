"""Injected faults, drawn from a seed: what is done, to whom, and how many jobs were in flight at that moment."""

import asyncio
import contextlib
import random
import signal
from collections.abc import Awaitable, Callable

import psycopg
from psycopg import AsyncConnection

from relay.bulk import Selection
from relay.database import Database
from relay.dead import Letters
from relay.demo.postgres import Postgres
from tests.chaos.fleet import Fleet

_RUNNING = b"SELECT count(*) FROM outbox.job WHERE status = 'running' AND (locked_by LIKE %s OR %s)"
_BACKENDS = b"SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'relay %' ORDER BY pid"
_DEAD = b"SELECT id FROM outbox.job WHERE status = 'dead' ORDER BY id"


class Faults:
    """One fault after another until told to stop; each leaves the world able to recover."""

    def __init__(self, postgres: Postgres, dsn: str, fleet: Fleet, seed: str, freeze_s: float) -> None:
        self.kills = 0
        self.in_flight_at_kills = 0
        self.redriven = 0
        self.done: list[str] = []
        self._postgres = postgres
        self._dsn = dsn
        self._fleet = fleet
        self._rng = random.Random(seed)
        self._freeze_s = freeze_s

    async def run(self, seconds: float) -> None:
        """Injects for `seconds`, then undoes what lasts."""
        kinds: list[tuple[Callable[[], Awaitable[None]], int]] = [
            (self._kill, 5), (self._freeze, 3), (self._backends, 4), (self._restart, 1), (self._pause, 2),
            (self._redrive, 4), (self._stop, 2),
        ]  # fmt: skip
        weights = [weight for _, weight in kinds]
        loop = asyncio.get_running_loop()
        end_s = loop.time() + seconds
        while loop.time() < end_s:
            [(fault, _)] = self._rng.choices(kinds, weights)
            self.done.append(fault.__name__.strip("_"))
            try:
                await fault()
            except (psycopg.Error, OSError) as error:
                self.done.append(f"({type(error).__name__})")
            await asyncio.sleep(self._rng.uniform(0.3, 2.0))
        await self._restart_dead()

    async def _restart_dead(self) -> None:
        for name in self._fleet.names:
            if not self._fleet.alive(name):
                await self._fleet.start(name)

    async def _kill(self) -> None:
        name = self._rng.choice(self._fleet.names)
        self._fleet.signal(name, signal.SIGKILL)
        await self._count(name)
        await self._fleet.ended(name)
        await asyncio.sleep(self._rng.uniform(0.0, 1.0))
        await self._fleet.start(name)

    async def _freeze(self) -> None:
        name = self._rng.choice(self._fleet.names)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._fleet.freeze(name, self._freeze_s))
            await self._count(name)

    async def _stop(self) -> None:
        name = self._rng.choice(self._fleet.names)
        self._fleet.signal(name, signal.SIGTERM)
        await self._fleet.ended(name)
        await self._fleet.start(name)

    async def _backends(self) -> None:
        async with await AsyncConnection.connect(self._dsn, autocommit=True) as connection:
            pids = [row[0] for row in await (await connection.execute(_BACKENDS)).fetchall()]
            for pid in self._rng.sample(pids, min(len(pids), 3)):
                await connection.execute(b"SELECT pg_terminate_backend(%s)", (pid,))

    async def _restart(self) -> None:
        await self._count("")
        await asyncio.to_thread(self._postgres.kill)
        await asyncio.sleep(self._rng.uniform(0.0, 2.0))
        await asyncio.to_thread(self._postgres.start)

    async def _pause(self) -> None:
        destination = self._rng.choice(("block", "skip"))
        await self._fleet.command("pause", destination)
        await asyncio.sleep(self._rng.uniform(0.5, 2.0))
        await self._fleet.command("resume", destination)

    async def _redrive(self) -> None:
        async with await AsyncConnection.connect(self._dsn, autocommit=True) as connection:
            ids = await dead(connection)
        await redrive(self._dsn, ids, force=False)
        self.redriven += len(ids)

    async def _count(self, name: str) -> None:
        """Jobs in flight on a replica that has just stopped moving; an empty name counts all."""
        self.kills += 1
        with contextlib.suppress(psycopg.Error):
            async with await AsyncConnection.connect(self._dsn, autocommit=True) as connection:
                row = await (await connection.execute(_RUNNING, (f"{name}-%", not name))).fetchone()
                self.in_flight_at_kills += row[0] if row else 0


async def dead(connection: AsyncConnection) -> list[int]:
    """The ids of all dead letters."""
    return [row[0] for row in await (await connection.execute(_DEAD)).fetchall()]


async def redrive(dsn: str, ids: list[int], *, force: bool) -> None:
    """Makes dead jobs due again, as an operator does."""
    if ids:
        async with Database(dsn, name="chaos", pool_size=1) as database:
            await Letters(database, actor="chaos").redrive(Selection(ids=tuple(ids)), force=force)
