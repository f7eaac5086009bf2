"""The demo's application: writes orders and, in the same transaction, the jobs that tell others."""

import asyncio
import json
import random
import time
import uuid

import psycopg
from psycopg.rows import TupleRow

from relay.demo.report import Event, Tally

ORDERS = 300
WRITERS = 4
EVENTS_PER_S = 120
ROLLED_BACK_SHARE = 0.05
POISONED_ORDER = 7
POISONED_SHARE = 0.01
STEPS = ("order.created", "order.paid", "order.shipped")

Connection = psycopg.AsyncConnection[TupleRow]

SHOP = """
CREATE ROLE shop LOGIN IN ROLE outbox_producer;
CREATE SCHEMA shop AUTHORIZATION shop;
SET ROLE shop;
CREATE TABLE shop.orders (id bigint PRIMARY KEY, version integer NOT NULL, status text NOT NULL);
INSERT INTO shop.orders SELECT n, 0, 'new' FROM generate_series(1, {orders}) AS n;
RESET ROLE;
"""


class RolledBackError(Exception):
    """The application changed its mind: the order and its jobs must both not have happened."""


async def open_shop(dsn: str) -> None:
    """Create the shop's tables and its role, which may only insert jobs."""
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute(SHOP.format(orders=ORDERS).encode())


class Producer:
    """Writes until `deadline_s` on the monotonic clock and tells `tally` what was committed."""

    def __init__(self, dsn: str, tally: Tally, deadline_s: float) -> None:
        self._dsn = dsn
        self._tally = tally
        self._deadline_s = deadline_s
        self._rng = random.Random()

    async def run(self) -> None:
        """The poisoned job first, then several writers at once, so that orders are contended for."""
        async with await self._connect() as connection:
            await self._change(connection, POISONED_ORDER)
        async with asyncio.TaskGroup() as writers:
            for _ in range(WRITERS):
                writers.create_task(self._write())

    async def _write(self) -> None:
        async with await self._connect() as connection:
            due_s = time.monotonic()
            while due_s < self._deadline_s:
                unlucky = self._rng.random() < POISONED_SHARE
                await self._change(connection, POISONED_ORDER if unlucky else self._rng.randint(1, ORDERS))
                due_s += self._rng.expovariate(EVENTS_PER_S / WRITERS)
                await asyncio.sleep(due_s - time.monotonic())

    async def _connect(self) -> Connection:
        return await psycopg.AsyncConnection.connect(self._dsn, user="shop", autocommit=True)

    async def _change(self, connection: Connection, order: int) -> None:
        key = uuid.uuid4().hex
        try:
            async with connection.transaction():
                topic, poisoned = await self._advance(connection, order, key)
                if not poisoned and self._rng.random() < ROLLED_BACK_SHARE:
                    raise RolledBackError
                event = Event(key, topic, time.monotonic(), poisoned)
        except RolledBackError:
            self._tally.rolled_back += 1
        else:
            self._tally.commit(event)

    async def _advance(self, connection: Connection, order: int, key: str) -> tuple[str, bool]:
        """One step of an order, and its job. The row lock makes the order of ids the order of commits."""
        cursor = await connection.execute("SELECT version FROM shop.orders WHERE id = %s FOR UPDATE", [order])
        row = await cursor.fetchone()
        version = int(row[0]) if row else 0
        poisoned = order == POISONED_ORDER and version == 0
        topic = STEPS[version % len(STEPS)]
        await connection.execute(
            "UPDATE shop.orders SET version = version + 1, status = %s WHERE id = %s", [topic, order]
        )
        payload = {"order_id": order, "version": version, "poison": poisoned}
        await connection.execute(
            "INSERT INTO outbox.job (topic, entity_key, idempotency_key, payload) VALUES (%s, %s, %s, %s::json)",
            [topic, f"order-{order}", key, json.dumps(payload)],
        )
        return topic, poisoned
