"""Faults of what a replica lives on: descriptors, memory, time, names, and somewhere to log to.

A collector that hangs or is gone is in tests/traces/test_collector.py.
"""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest
from aiohttp import web

import relay
from relay.demo.nest import Nest
from relay.demo.postgres import Postgres
from relay.migrate import migrate
from tests.conftest import Connection
from tests.receiver import Arrival, Receiver
from tests.schema.rows import column, value

pytestmark = pytest.mark.timeout(180)

LEASE_S = 8.0
MIB = 1_048_576
_INSERT = """
INSERT INTO outbox.job (topic, destination, entity_key, payload)
SELECT 't', %s, CASE WHEN n %% 2 = 0 THEN 'lane-' || n %% 5 END, to_json(repeat('x', %s)) FROM generate_series(1, %s) n
"""
_FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"  # Debian: apt-get install faketime


@dataclass
class Bench:
    """A database, a receiver, and one replica started the way that a fault needs."""

    nest: Nest
    dsn: str
    connection: Connection
    receiver: Receiver
    settings: dict[str, object] = field(default_factory=dict)

    @property
    def log(self) -> str:
        """What the replica printed so far."""
        return (self.nest.path / "relay.log").read_text()

    def start(
        self,
        shell: str = "exec",
        *,
        environment: Mapping[str, str] | None = None,
        urls: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """A replica, as the last words of a shell's command; `urls` are of more destinations than the receiver."""
        urls = {"shop": self.receiver.url(), **(urls or {})}
        destination = {"signed": True, "secrets": [{"env": "SECRET"}], "insecure_http": True}
        file = self.nest.path / "relay.yaml"
        replica = {"name": "one", "lease_s": LEASE_S, "poll_s": 0.2, "drain_s": 8, "termination_grace_s": 12}
        content = {
            "database": {"dsn": self.dsn},
            "replica": {**replica, **self.settings},
            "retention": {"sweep_s": 0.5},
            "defaults": {"deadline_s": 2, "retry": {"max_attempts": 200, "base_s": 0.1, "factor": 1, "jitter": 0.5}},
            "destinations": {name: {"url": url, **destination} for name, url in urls.items()},
        }
        file.write_text(json.dumps(content))
        known = {
            **{name: text for name, text in os.environ.items() if not name.startswith(("RELAY_", "OTEL_"))},
            "PYTHONPATH": str(Path(relay.__file__).parents[1]), "RELAY_CONFIG": str(file),
            "SECRET": "whsec_" + "QUJD" * 8,
        }  # fmt: skip
        command = ["sh", "-c", f'{shell} "$0" -m relay run', sys.executable]
        return self.nest.start(command, log=self.nest.path / "relay.log", env={**known, **(environment or {})})

    async def insert(self, jobs: int, *, payload_bytes: int = 10, destination: str = "shop") -> None:
        """Commits so many jobs, half of them in five lanes."""
        await self.connection.execute(_INSERT.encode(), [destination, payload_bytes, jobs])

    async def all_done(self, process: subprocess.Popen[bytes], within_s: float = 90.0) -> None:
        """Waits until every job of `shop` is done; the replica lives, and the receiver has each of them."""
        async with asyncio.timeout(within_s):
            while await value(
                self.connection, "SELECT count(*) FROM outbox.job WHERE destination = 'shop' AND status <> 'done'"
            ):
                assert process.poll() is None, self.log[-3000:]
                await asyncio.sleep(0.05)
        jobs = await column(self.connection, "SELECT id FROM outbox.job WHERE destination = 'shop'")
        assert {each.sequence for each in self.receiver.answered if each.status == 204} == {*jobs}

    async def ends(self, process: subprocess.Popen[bytes]) -> int:
        """SIGTERM, and the exit code."""
        process.send_signal(signal.SIGTERM)
        return await asyncio.to_thread(process.wait, 30)


@pytest.fixture
async def bench(nest: Nest, server: Postgres) -> AsyncIterator[Bench]:
    """Nothing is wrong yet."""
    dsn = server.create_database("faults")
    await migrate(dsn)
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection, Receiver() as receiver:
        await connection.execute("INSERT INTO outbox.destination (name) VALUES ('shop')")
        yield Bench(nest, dsn, connection, receiver)


def peak_kib(process: subprocess.Popen[bytes]) -> int:
    """The most memory that the process ever had."""
    return int(Path(f"/proc/{process.pid}/status").read_text().split("VmHWM:")[1].split()[0])


async def slow(_: Arrival) -> web.StreamResponse:
    """Accepts after a moment, so that many requests are out at once."""
    await asyncio.sleep(0.3)
    return web.Response(status=204)


async def test_without_descriptors_attempts_fail_with_a_reason_and_all_is_delivered(bench: Bench) -> None:
    bench.receiver.answer = slow
    await bench.insert(200)
    process = bench.start("ulimit -n 48; exec")
    await bench.all_done(process)
    details = await column(bench.connection, "SELECT DISTINCT detail FROM outbox.attempt")
    assert any("Too many open files" in detail for detail in details), details
    assert await bench.ends(process) == 0


async def test_payloads_of_1_mib_in_every_slot_stay_within_the_budget_of_bytes(bench: Bench) -> None:
    bench.receiver.answer = slow
    bench.settings = {"payload_budget_bytes": 16 * MIB}
    await bench.insert(150, payload_bytes=MIB - 2)
    process = bench.start("ulimit -v 900000; exec")
    await bench.all_done(process)
    # In flight, as read from the socket, and as the answer of the query.
    assert peak_kib(process) < (64 + 6 * 16) * 1024
    assert await bench.ends(process) == 0


async def test_a_memory_limit_below_what_the_slots_hold_loses_nothing(bench: Bench) -> None:
    bench.receiver.answer = slow
    await bench.insert(150, payload_bytes=MIB - 2)
    process = bench.start("ulimit -v 340000; exec")
    try:
        await bench.all_done(process, within_s=40)
    except (TimeoutError, AssertionError):
        # It may be too little to work with: then another one, with enough, finds all that was left.
        process.kill()
        process.wait()
        process = bench.start()
        await bench.all_done(process)
    assert await bench.ends(process) == 0


async def test_a_process_that_stands_still_longer_than_its_lease_goes_on_and_loses_nothing(bench: Bench) -> None:
    bench.receiver.answer = slow
    await bench.insert(300)
    process = bench.start()
    await bench.receiver.wait_for(50)
    process.send_signal(signal.SIGSTOP)
    await asyncio.sleep(LEASE_S + 2)  # the fault itself
    process.send_signal(signal.SIGCONT)
    await bench.all_done(process)
    assert await value(bench.connection, "SELECT count(*) FROM outbox.job WHERE status = 'running'") == 0
    assert await bench.ends(process) == 0


async def test_a_resolver_that_never_answers_holds_up_its_own_names_only(bench: Bench) -> None:
    file = bench.nest.path / "resolv.conf"
    file.write_text("nameserver 127.0.0.1\n")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 53))
        shell = f"exec unshare --mount sh -c 'mount --bind {file} /etc/resolv.conf && exec \"$@\"' sh"
        urls = {f"hangs-{number}": f"https://hangs-{number}.example/" for number in range(20)}
        process = bench.start(shell, urls=urls)
        for name in urls:
            await bench.insert(5, destination=name)
        await bench.insert(500)
        await bench.all_done(process)
        async with asyncio.timeout(30):
            while not await column(bench.connection, "SELECT 1 FROM outbox.attempt"):
                await asyncio.sleep(0.1)
    faults = await column(bench.connection, "SELECT DISTINCT error_class FROM outbox.attempt")
    assert {*faults} <= {"connect", "deadline", "dns"}
    assert await value(bench.connection, "SELECT count(*) FROM outbox.job WHERE status = 'dead'") == 0
    assert await bench.ends(process) == 0


@pytest.mark.parametrize("jump", ["+1d", "-1d"])
async def test_a_clock_that_jumps_a_day_changes_the_time_in_signatures_and_nothing_else(
    bench: Bench, jump: str
) -> None:
    clock = bench.nest.path / "clock"
    clock.write_text("+0\n")
    fake = {
        "LD_PRELOAD": _FAKETIME, "FAKETIME_TIMESTAMP_FILE": str(clock), "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1",
    }  # fmt: skip
    process = bench.start(environment=fake)
    await bench.insert(100)
    await bench.all_done(process)
    clock.write_text(f"{jump}\n")
    await bench.insert(100)
    await bench.all_done(process)
    stamps = [int(each.headers["webhook-timestamp"]) for each in bench.receiver.answered]
    assert 86_000 < abs(stamps[-1] - stamps[0]) < 87_000
    assert await value(bench.connection, "SELECT max(attempts) FROM outbox.job") == 1
    assert len(bench.receiver.answered) == 200
    assert await bench.ends(process) == 0


@pytest.mark.parametrize(
    "shell",
    [
        "exec 2>/dev/full; exec",
        "exec 2>&-; exec",
        "mkfifo pipe; sleep 9 <pipe & exec 2>pipe; kill $!; exec",
    ],
    ids=["a full disk", "closed", "a pipe that nobody reads any more"],
)
async def test_a_log_that_cannot_be_written_holds_up_no_delivery(bench: Bench, shell: str) -> None:
    process = bench.start(shell, environment={"RELAY_LOG_LEVEL": "debug"})
    await bench.insert(100)
    await bench.all_done(process)
    assert await bench.ends(process) == 0
