"""`relay demo`: a shop, a receiver and two replicas on a private PostgreSQL; one is killed half-way."""

import asyncio
import os
import signal
import time
from dataclasses import dataclass, field
from json import dumps

import psycopg
from psycopg.rows import TupleRow

from relay.demo.fleet import Fleet
from relay.demo.nest import Nest
from relay.demo.postgres import Postgres
from relay.demo.producer import Producer, open_shop
from relay.demo.report import Row, Summary, Tally, fates_of
from relay.demo.view import Moment, View, open_view
from relay.errors import RelayError

GRACE_S = 30.0
TICK_S = 0.25
QUIET_SHARE = 0.3
QUIET_S = 4.0
VICTIM = "replica-1"
INTERRUPTED = 130

LISTENING = "SELECT count(*) FROM pg_stat_activity WHERE query = 'LISTEN outbox'"
ROWS = "SELECT id, destination, entity_key, idempotency_key, status FROM outbox.job"
STATUSES = "SELECT status, count(*) FROM outbox.job GROUP BY status"
HELD = "SELECT count(*) FROM outbox.job WHERE status = 'running' AND starts_with(locked_by, %s)"

Connection = psycopg.AsyncConnection[TupleRow]


def run(seconds: int, json: bool) -> int:  # noqa: FBT001  the command's flag
    """Run the demo for `seconds` (and up to 30 s more until the rest has arrived); return the exit code.

    0: nothing lost, no inversion, every signature verified, only the poisoned job dead. 1: not so.
    130: interrupted. With `json` the summary's last line is one JSON object. Raises `RelayError`.
    """
    # A script's background job starts with SIGINT ignored; whoever sends it means it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with Nest() as nest:
            print("starting PostgreSQL, two replicas, a receiver and a shop ...", flush=True)
            with Postgres(nest) as postgres, open_view(plain=json) as view:
                summary = asyncio.run(Story(nest, postgres, view, seconds).tell())
    except KeyboardInterrupt:
        print("interrupted; every process is stopped and every file removed", flush=True)
        return INTERRUPTED
    print_summary(summary)
    if json:
        print(dumps(summary.as_json()), flush=True)
    return 0 if summary.kept else 1


@dataclass
class Story:
    """The demo from the first migration to the summary."""

    nest: Nest
    postgres: Postgres
    view: View
    seconds: int
    tally: Tally = field(default_factory=Tally)
    held: int = 0

    async def tell(self) -> Summary:
        """Play it and count."""
        dsn = self.postgres.create_database("demo")
        fleet = Fleet(self.nest, dsn)
        await fleet.start_receiver()
        fleet.command("migrate")
        fleet.command("sync")
        await open_shop(dsn)
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
            await self._start_replicas(fleet, connection)
            start_s = time.monotonic()
            quiet_s = min(QUIET_SHARE * self.seconds, QUIET_S)
            producer = Producer(dsn, self.tally, start_s + self.seconds - quiet_s)
            writing = asyncio.create_task(producer.run())
            try:
                await self._watch(fleet, connection, start_s, writing)
            finally:
                writing.cancel()
            await fleet.stop_replicas()
            self._collect(fleet)
            return self.tally.summary(
                await _rows(connection),
                killed_replicas=1,
                postgres=await _value(connection, "SHOW server_version"),
            )

    async def _start_replicas(self, fleet: Fleet, connection: Connection) -> None:
        """Until they listen: the time a process needs to start is not the latency of a delivery."""
        for name in (VICTIM, "replica-2"):
            fleet.start_replica(name)
        give_up = time.monotonic() + GRACE_S
        while (listening := int(await _value(connection, LISTENING))) < len(fleet.replicas):
            fleet.check()
            if time.monotonic() > give_up:
                raise RelayError(f"{listening} of {len(fleet.replicas)} replicas listen after {GRACE_S:.0f} s")
            await asyncio.sleep(TICK_S / 10)

    async def _watch(self, fleet: Fleet, connection: Connection, start_s: float, writing: asyncio.Task[None]) -> None:
        """Show how it goes, kill a replica half-way, and end when everything has an end or time is up."""
        killed = False
        starter = os.getppid()
        while True:
            fleet.check()
            if writing.done():
                writing.result()
            if os.getppid() != starter:
                raise RelayError("the process that started the demo is gone")
            self._collect(fleet)
            elapsed_s = time.monotonic() - start_s
            if not killed and elapsed_s >= self.seconds / 2:
                killed = True
                await self._kill_and_replace(fleet, connection)
            await self._show(connection, elapsed_s, killed=killed)
            if killed and writing.done() and elapsed_s >= self.seconds and await self._finished(connection):
                return
            if elapsed_s >= self.seconds + GRACE_S:
                return
            await asyncio.sleep(TICK_S)

    async def _kill_and_replace(self, fleet: Fleet, connection: Connection) -> None:
        fleet.kill_replica(VICTIM)
        self.held = int(await _value(connection, HELD, VICTIM))
        self.view.note(f"{VICTIM} got SIGKILL while it held {self.held} jobs; replica-3 takes its place")
        fleet.start_replica("replica-3")

    async def _show(self, connection: Connection, elapsed_s: float, *, killed: bool) -> None:
        cursor = await connection.execute(STATUSES.encode())
        counts = {str(status): int(number) for status, number in await cursor.fetchall()}
        if killed and self.held:
            left = int(await _value(connection, HELD, VICTIM))
            if left == 0:
                self.view.note(f"all {self.held} jobs that {VICTIM} held came back")
                self.held = 0
        self.view.show(
            Moment(
                elapsed_s=elapsed_s,
                committed=len(self.tally.expected),
                delivered=len(self.tally.delivered),
                in_flight=counts.get("running", 0),
                backlog=counts.get("pending", 0) + counts.get("blocked", 0),
                dead=counts.get("dead", 0),
                retries=self.tally.retries,
                inversions=self.tally.inversions,
                latency=self.tally.latency_ms(),
                requests=dict(self.tally.requests),
                accepted=dict(self.tally.accepted),
            )
        )

    def _collect(self, fleet: Fleet) -> None:
        for arrival in fleet.arrivals():
            self.tally.arrive(arrival)

    async def _finished(self, connection: Connection) -> bool:
        return "unfinished" not in fates_of(await _rows(connection)).values()


def print_summary(summary: Summary) -> None:
    """The result in words, a line for each number."""
    print()
    for name, value in summary.as_json().items():
        text = " ".join(f"{part} {number}" for part, number in value.items()) if isinstance(value, dict) else value
        print(f"{name.replace('_', ' '):>20}  {text}")
    print(flush=True)


async def _rows(connection: Connection) -> list[Row]:
    cursor = await connection.execute(ROWS.encode())
    return [Row(*row) for row in await cursor.fetchall()]


async def _value(connection: Connection, query: str, *parameters: str) -> str:
    cursor = await connection.execute(query.encode(), parameters or None)
    row = await cursor.fetchone()
    return str(row[0]) if row else ""
