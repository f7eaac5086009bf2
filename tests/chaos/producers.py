"""Producers of two kinds: those that lock the entity's row before they insert, and those that do not."""

import asyncio
import contextlib
import json
import random

import psycopg
from psycopg import AsyncConnection

LOCKED = [f"locked-{n}" for n in range(30)]
LOOSE = [f"loose-{n}" for n in range(8)]

_LOCK = b"SELECT key FROM chaos.entity WHERE key = %s FOR UPDATE"
_INSERT = b"INSERT INTO outbox.job (topic, entity_key, payload, priority) VALUES ('event', %s, %s::json, %s)"


class Producer:
    """Runs transactions until told to stop; a lost connection is opened anew, its transaction is not counted."""

    def __init__(self, dsn: str, seed: str) -> None:
        self.committed = 0
        self.rolled_back = 0
        self.stopping = False
        self._dsn = dsn
        self._rng = random.Random(seed)

    async def run(self) -> None:
        """Inserts until `stopping`."""
        while not self.stopping:
            with contextlib.suppress(psycopg.Error, OSError):
                async with await AsyncConnection.connect(self._dsn, connect_timeout=5) as connection:
                    while not self.stopping:
                        await self._transaction(connection)
            await asyncio.sleep(0.1)

    async def _transaction(self, connection: AsyncConnection) -> None:
        rng = self._rng
        kind = rng.random()
        entity = rng.choice(LOCKED) if kind < 0.6 else rng.choice(LOOSE) if kind < 0.85 else None
        async with connection.cursor() as cursor:
            if entity in LOCKED:
                await cursor.execute(_LOCK, (entity,))
            for _ in range(rng.choice((1, 1, 1, 2, 3))):
                payload = {"poison": rng.random() < 0.01, "pad": "ü" * rng.randrange(40)}
                body = json.dumps(payload, ensure_ascii=False)
                await cursor.execute(_INSERT, (entity, body, rng.choice((0, 1, 1, 1, 3))))
        # Some commits come late: the window in which ids and commits can be in different orders.
        await asyncio.sleep(rng.choice((0.0, 0.0, 0.005, 0.02, 0.3)))
        if rng.random() < 0.07:
            await connection.rollback()
            self.rolled_back += 1
        else:
            await connection.commit()
            self.committed += 1
        await asyncio.sleep(rng.uniform(0.0, 0.05))
