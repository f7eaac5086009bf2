"""Producers, two replicas, a receiver and a PostgreSQL of their own; and the oracle that judges what a fault did."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from psycopg import AsyncConnection
from psycopg.conninfo import make_conninfo

import tests.chaos
from relay.demo.nest import Nest
from relay.demo.postgres import Postgres
from relay.migrate import migrate
from tests.chaos import oracle
from tests.chaos.drain import drained
from tests.chaos.fleet import DEADLINE_S, SECRET, Fleet
from tests.chaos.producers import LOCKED, LOOSE, Producer
from tests.chaos.receiver import Receiver
from tests.faults.proxy import Proxy

REPLICAS = ["replica-a", "replica-b"]
PATIENCE_S = 120.0
STATEMENT_S = 4.0
# A statement without an answer is given up 2 s after its limit, and once more after 10 s in which it was asked to stop.
# Then loops look again every 5 s, with jitter upward of a half, and wait up to 2 s for a connection.
DATABASE_BACK_S = STATEMENT_S + 2.0 + 10.0 + 7.5 + 2.0
_HISTORY = Path(tests.chaos.__path__[0]) / "history.sql"
_PROBE = b"INSERT INTO outbox.job (topic, entity_key, idempotency_key, payload) VALUES ('event', %s, %s, '{}')"
# What may have reached the receiver although the relay knows of no answer.
_UNANSWERED = b"SELECT count(*) FROM outbox.attempt WHERE status IS NULL"


@dataclass
class World:
    """A run under way. `dsn` is the producers' and the oracle's road to the database, which no fault is on."""

    dsn: str
    server: Postgres
    nest: Nest
    receiver: Receiver
    fleet: Fleet
    producers: list[Producer]
    probes: int = 0

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[AsyncConnection]:
        """A connection in autocommit, on the road that no fault is on."""
        async with await AsyncConnection.connect(self.dsn, autocommit=True) as connection:
            yield connection

    async def flows(self, number: int = 100) -> None:
        """Returns when so many more requests have arrived."""
        wanted = len(self.receiver.arrivals) + number
        async with asyncio.timeout(PATIENCE_S):
            while len(self.receiver.arrivals) < wanted:
                await asyncio.sleep(0.02)

    async def recovers(self, within_s: float) -> float:
        """Inserts a job once the fault is over; the seconds until both destinations have accepted it.

        Raises AssertionError when that takes longer than `within_s`.
        """
        self.probes += 1
        since_s, key = time.monotonic(), f"probe-{self.probes}"
        async with self.connected() as connection:
            await connection.execute(_PROBE, (key, key))
        while True:
            accepted = {a.destination for a in self.receiver.arrivals if a.key == key and a.status == 204}
            taken_s = time.monotonic() - since_s
            if len(accepted) == 2:  # block and skip
                return taken_s
            assert taken_s < within_s, (
                f"a new job is not delivered {taken_s:.0f} s after the fault: {self.last_words()}"
            )
            await asyncio.sleep(0.02)

    async def judged(self) -> oracle.Verdict:
        """Stops the producers, waits until nothing moves and asks the oracle; its verdict, which names no fault."""
        for producer in self.producers:
            producer.stopping = True
        self.receiver.calm = True
        await drained(self.dsn, redrives=True)
        verdict = oracle.Verdict(seed=0, healed=self.fleet.events("lane_healed"))
        async with self.connected() as connection:
            [verdict.in_flight_at_kills] = await (await connection.execute(_UNANSWERED)).fetchone() or (0,)
            await oracle.judge(connection, self.receiver.arrivals, verdict, self.fleet)
        assert not verdict.faults, "\n".join([*verdict.faults[:20], self.last_words()])
        never = ('loop_crashed"', 'attempt_crashed"', SECRET.removeprefix("whsec_"))
        lines = [line for name in REPLICAS for line in self.fleet.log(name).read_text().splitlines()]
        said = [line for line in lines if any(word in line for word in never)]
        assert not said, "\n".join(said)
        assert all(self.fleet.alive(name) for name in REPLICAS), self.last_words()
        return verdict

    async def says(self, event: str) -> None:
        """Returns when a replica has logged this event."""
        await told(self.fleet, event, 1)

    def last_words(self) -> str:
        """The end of each replica's log."""
        return "\n".join(self.fleet.log(name).read_text()[-1500:] for name in REPLICAS)


async def told(fleet: Fleet, event: str, times: int) -> None:
    """Returns when the replicas have logged this event so often."""
    async with asyncio.timeout(PATIENCE_S):
        while fleet.events(event) < times:
            await asyncio.sleep(0.1)


@asynccontextmanager
async def world(
    nest: Nest,
    server: Postgres,
    dsn: str,
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    receivers: Proxy | None = None,
    defaults: Mapping[str, str] | None = None,
) -> AsyncIterator[World]:
    """Everything running on the empty database at `dsn`.

    The replicas reach it at `host` and `port`, as a role whose sessions begin with the settings `defaults`, and the
    receiver directly or by the proxy `receivers`.
    """
    await migrate(dsn)
    async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute(_HISTORY.read_bytes())
        await connection.execute(b"CREATE ROLE relay_faults LOGIN IN ROLE outbox_relay")
        for name, value in (defaults or {}).items():
            await connection.execute(f"ALTER ROLE relay_faults SET {name} = '{value}'".encode())
        for key in LOCKED + LOOSE:
            await connection.execute(b"INSERT INTO chaos.entity VALUES (%s)", (key,))
    receiver = Receiver(seed=1, hang_s=2 * DEADLINE_S)
    runner = await receiver.start()
    road = make_conninfo(dsn, user="relay_faults", host=host, port=port or server.port)
    target = receiver.port
    if receivers is not None:
        receivers.to, target = target, receivers.port
    fleet = Fleet(nest, road, target, REPLICAS, database={"statement_timeout_s": STATEMENT_S})
    await fleet.command("sync")
    for name in REPLICAS:
        await fleet.start(name)
    await told(fleet, "replica_started", len(REPLICAS))
    producers = [Producer(dsn, f"{n}") for n in range(2)]
    async with asyncio.TaskGroup() as group:
        for producer in producers:
            group.create_task(producer.run())
        try:
            yield World(dsn, server, nest, receiver, fleet, producers)
        finally:
            for producer in producers:
                producer.stopping = True
            await runner.cleanup()
