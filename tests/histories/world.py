"""One database, and a connection for everybody who works on it: at most one statement under way on each."""

import asyncio
from collections import Counter
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from psycopg import AsyncConnection, IsolationLevel
from psycopg.conninfo import make_conninfo

from relay.database import Database
from tests.histories.places import GATE, PLACES

REPLICAS = 2
PATIENCE_S = 30.0
_RECORD = Path(__file__).parents[1] / "chaos" / "history.sql"
_WAITING = b"""
SELECT pid, locktype = 'advisory', objid::integer FROM pg_catalog.pg_locks WHERE NOT granted AND pid = ANY (%s)
"""


@dataclass(eq=False)
class Actor:
    """A connection as the relay has them. `closed` is the place where the controller stops it."""

    number: int
    database: Database
    pid: int
    task: asyncio.Task[None] | None = None
    closed: int | None = None
    met: set[str] = field(default_factory=set)


class World:
    """Starts work on the actors' connections, and knows when nothing moves any more.

    `broken` gives the settles of all replicas one snapshot for both statements, which the protocol forbids.
    """

    control: AsyncConnection
    producers: list[AsyncConnection]

    def __init__(self, dsn: str, *, broken: bool) -> None:
        self.claimers: list[Actor] = []
        self.settlers: list[Actor] = []
        self.tally: Counter[str] = Counter()
        self.stops: Counter[str] = Counter()
        self._dsn = dsn
        self._broken = broken
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with await AsyncConnection.connect(self._dsn, autocommit=True) as connection:
            await connection.execute(GATE)
            await connection.execute(_RECORD.read_bytes())
        self.control = await self._stack.enter_async_context(
            await AsyncConnection.connect(self._dsn, autocommit=True, prepare_threshold=1)
        )
        self.producers = [
            await self._stack.enter_async_context(await AsyncConnection.connect(self._dsn)) for _ in range(2)
        ]
        self.claimers = [await self._actor(n) for n in range(REPLICAS)]
        self.settlers = [await self._actor(REPLICAS + n, broken=self._broken) for n in range(REPLICAS)]
        self.sweeper, self.operator = await self._actor(2 * REPLICAS), await self._actor(2 * REPLICAS + 1)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def actors(self) -> list[Actor]:
        """Everybody but the producers."""
        return [*self.claimers, *self.settlers, self.sweeper, self.operator]

    async def _actor(self, number: int, *, broken: bool = False) -> Actor:
        dsn = make_conninfo(self._dsn, options=f"-c histories.actor={number}")
        database = await self._stack.enter_async_context(Database(dsn, name=f"actor {number}", pool_size=1))
        async with database._pool.connection() as connection:
            if broken:
                await connection.set_isolation_level(IsolationLevel.REPEATABLE_READ)
            return Actor(number, database, connection.info.backend_pid)

    async def start(self, actor: Actor, work: Coroutine[None, None, None], stop: int | None) -> None:
        """Starts `work` on an idle actor, which is to stop at a place; returns when nothing moves."""
        if stop is not None:
            await self.control.execute(b"SELECT pg_advisory_lock(%s, %s)", (actor.number, stop))
        actor.closed = stop
        actor.met.clear()
        actor.task = asyncio.create_task(work)
        await self.quiet()

    async def open(self, actor: Actor) -> None:
        """Lets an actor go on; returns when nothing moves."""
        await self._unlock(actor)
        await self.quiet()

    async def _unlock(self, actor: Actor) -> None:
        if actor.closed is not None:
            await self.control.execute(b"SELECT pg_advisory_unlock(%s, %s)", (actor.number, actor.closed))
            actor.closed = None

    async def quiet(self) -> None:
        """Returns when every statement under way waits for somebody's lock. Raises what their work raised."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                tasks = {actor.pid: actor.task for actor in self.actors if actor.task}
                if tasks:
                    await asyncio.wait(tasks.values(), timeout=0.001)
                for actor in self.actors:
                    if actor.task and actor.task.done():
                        await self._end(actor)
                busy = [actor.pid for actor in self.actors if actor.task]
                if not busy:
                    return
                waiting = await (await self.control.execute(_WAITING, (busy,))).fetchall()
                if {row[0] for row in waiting} == set(busy):
                    self._note(waiting)
                    return

    async def _end(self, actor: Actor) -> None:
        task, actor.task = actor.task, None
        await self._unlock(actor)
        if task:
            await task

    def _note(self, waiting: list[tuple[int, bool, int]]) -> None:
        by_pid = {actor.pid: actor for actor in self.actors}
        for pid, at_gate, place in waiting:
            actor = by_pid[pid]
            what = (
                PLACES[place].name
                if at_gate
                else "settles that waited"
                if actor in self.settlers
                else "others that waited"
            )
            if what not in actor.met:
                actor.met.add(what)
                (self.stops if at_gate else self.tally)[what] += 1

    async def join(self) -> None:
        """Opens every gate and returns when nothing is under way."""
        for actor in self.actors:
            await self.open(actor)
        for actor in self.actors:
            await self._end(actor)

    async def abandon(self) -> None:
        """Ends whatever is under way, after a fault of the harness."""
        for actor in self.actors:
            if actor.task:
                actor.task.cancel()
                await asyncio.wait([actor.task])
            actor.task = actor.closed = None
        await self.control.execute(b"SELECT pg_advisory_unlock_all()")
