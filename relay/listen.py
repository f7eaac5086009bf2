"""Hears the producers' NOTIFY on a connection of its own; what it hears is a hint, never a fact."""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable

import psycopg
from psycopg import AsyncConnection

from relay.telemetry import event

CHANNEL = "outbox"
_HEARD_WITHIN_S = 2.0
_ALIVE_EVERY_S = 30.0


async def _connect(dsn: str, connect_timeout_s: float, name: str) -> AsyncConnection:
    return await AsyncConnection.connect(
        dsn,
        autocommit=True,
        application_name=name,
        connect_timeout=max(2, round(connect_timeout_s)),
        prepare_threshold=None,
        keepalives_idle=10,
        keepalives_interval=5,
        keepalives_count=3,
    )


async def arrives(dsn: str, connect_timeout_s: float) -> bool:
    """Whether a NOTIFY reaches a LISTEN over this DSN; a pooler in transaction mode swallows it."""
    async with await _connect(dsn, connect_timeout_s, "relay check") as connection:
        return await _probe(connection, dsn, connect_timeout_s)


async def _probe(connection: AsyncConnection, dsn: str, connect_timeout_s: float) -> bool:
    await connection.execute(b"LISTEN outbox_probe")
    # From another connection: what a session sends itself comes with the answer, through any pooler.
    async with await _connect(dsn, connect_timeout_s, "relay probe") as other:
        await other.execute(b"SELECT pg_notify('outbox_probe', '')")
    # The generator holds the connection until it ends, so nothing may be executed inside the loop.
    heard = [notify async for notify in connection.notifies(timeout=_HEARD_WITHIN_S, stop_after=1)]
    await connection.execute(b"UNLISTEN outbox_probe")
    return bool(heard)


class Listener:
    """Calls `ring` with the destination of each NOTIFY, and with "" whenever it may have missed some."""

    def __init__(
        self, dsn: str, *, ring: Callable[[str], None], connect_timeout_s: float, name: str, rng: random.Random
    ) -> None:
        self._dsn = dsn
        self._ring = ring
        self._connect_timeout_s = connect_timeout_s
        self._name = name
        self._rng = rng

    async def run(self) -> None:
        """Listens until cancelled; while the connection is away, the claims' own poll finds the jobs."""
        while True:
            # Away, or a standby by now, which refuses LISTEN.
            with contextlib.suppress(psycopg.Error, OSError):
                await self._listen()
            await asyncio.sleep(self._rng.uniform(0.5, 1.5))

    async def _listen(self) -> None:
        async with await _connect(self._dsn, self._connect_timeout_s, self._name) as connection:
            if not await _probe(connection, self._dsn, self._connect_timeout_s):
                event(logging.WARNING, "listen_hears_nothing", advice="set database.listen_dsn past the pooler")
            await connection.execute(b"LISTEN outbox")
            self._ring("")
            while True:
                async for notify in connection.notifies(timeout=_ALIVE_EVERY_S):
                    self._ring(notify.payload)
                # Nothing for a while: a connection that died silently answers no query.
                async with asyncio.timeout(self._connect_timeout_s):
                    await connection.execute(b"SELECT 1")
