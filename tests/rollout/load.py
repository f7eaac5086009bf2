"""Producers that go on through a rollout, and what must hold of all that they were told is committed."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

import psycopg

from tests.receiver import Arrival, Receiver
from tests.service.replica import Event, Replica

PRODUCERS, ENTITIES = 3, 8
INSERT = """
INSERT INTO outbox.job (topic, destination, entity_key, idempotency_key, payload)
VALUES ('order.paid', 'shop', %s, %s, '{}')
"""


class Load:
    """Producers, each with entities of its own, so that ids are in the order of commits."""

    def __init__(self, dsn: str, receiver: Receiver) -> None:
        self.committed: list[str] = []
        self._dsn = dsn
        self._receiver = receiver
        self._stopping = False

    async def produce(self, name: int) -> None:
        """Inserts jobs, one a transaction, until told to stop."""
        async with await psycopg.AsyncConnection.connect(self._dsn, autocommit=True) as connection:
            number = 0
            while not self._stopping:
                key = f"{name}-{number}"
                await connection.execute(INSERT, (f"entity-{name}-{number % ENTITIES}", key))
                self.committed.append(key)
                number += 1
                await asyncio.sleep(0.01)

    def stop(self) -> None:
        """Ends the producers."""
        self._stopping = True

    async def goes_on(self, jobs: int = 100) -> None:
        """Returns when so many more jobs have been answered."""
        before = len(self._receiver.answered)
        await self._receiver.wait_for(before + jobs)

    async def delivered(self) -> None:
        """Returns when each committed job has been answered."""
        wanted = set(self.committed)
        await self._receiver.wait_until(lambda arrivals: wanted <= {each.key for each in arrivals}, timeout_s=60)


@asynccontextmanager
async def load(dsn: str, receiver: Receiver) -> AsyncIterator[Load]:
    """Producers at work for as long as the context is open; at its end all that they committed is delivered."""
    load = Load(dsn, receiver)
    async with asyncio.TaskGroup() as group:
        for name in range(PRODUCERS):
            group.create_task(load.produce(name))
        try:
            yield load
        finally:
            load.stop()
    await load.delivered()


def out_of_order(arrivals: Sequence[Arrival]) -> list[list[int]]:
    """The lanes whose jobs came twice or not in the order of their ids."""
    lanes: dict[str, list[int]] = defaultdict(list)
    for arrival in arrivals:
        lanes[arrival.headers["Relay-Entity-Key"]].append(arrival.sequence)
    return [lane for lane in lanes.values() if lane != sorted(set(lane))]


def complaints(replicas: Iterable[Replica]) -> list[Event]:
    """What replicas logged as warnings and errors, lapsed leases included."""
    return [event for replica in replicas for event in replica.events if event["level"] in {"warning", "error"}]
