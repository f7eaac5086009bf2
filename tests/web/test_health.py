"""`/startupz`, `/readyz` and `/livez` say how a replica is, and why; what a receiver does is none of it."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp import web as http

from relay.config import load
from relay.config.difference import Configuration
from relay.database import Database
from relay.demo.nest import Nest
from relay.demo.postgres import Postgres
from relay.replica import Replica
from relay.sender import Sender
from relay.service import _heed_changes
from relay.web import health
from relay.web.server import build, serve
from tests.conftest import Connection
from tests.metrics.scrape import Web, free_port
from tests.receiver import Arrival, Receiver, status
from tests.service.replica import Installation

LOOPS = ("claim", "scout", "settle", "renew", "reclaim", "heal", "retain", "sample", "reload")
STALL_S = 1.5


@dataclass
class Embedded:
    """A replica inside the test, and its server."""

    replica: Replica
    web: Web

    def stall(self, name: str) -> None:
        """From its next step on, a loop does not come back."""
        loop = self.replica.loops[name]

        async def never() -> float:
            await asyncio.Event().wait()
            return 0.0

        loop._step = never
        loop.wake()


@pytest.fixture
async def embedded(database: str, tmp_path: Path) -> AsyncIterator[Embedded]:
    """A replica whose loops may each take a second and a half, not a minute."""
    file = tmp_path / "relay.yaml"
    often = {"database": {"dsn": database}, "replica": {"poll_s": 0.2}, "retention": {"sweep_s": 0.2}}
    file.write_text(json.dumps(often))
    settings = load(file, {})
    async with AsyncExitStack() as stack:
        connections = await stack.enter_async_context(Database(database, name="relay test-00000000"))
        sender = await stack.enter_async_context(Sender())
        replica = Replica(
            settings,
            (),
            locked_by="test-00000000",
            name="relay test-00000000",
            database=connections,
            sender=sender,
            traces=None,
        )
        _heed_changes(replica, sender, connections, Configuration(settings, ()))
        stack.callback(asyncio.get_running_loop().remove_signal_handler, signal.SIGHUP)
        routes = health.routes(health.Health(replica, stall_s=STALL_S))
        port = await stack.enter_async_context(serve(build(routes), host="127.0.0.1", port=0))
        yield Embedded(replica, Web(port))


@pytest.fixture
async def running(embedded: Embedded) -> AsyncIterator[Embedded]:
    """The same, at work."""
    task = asyncio.create_task(embedded.replica.run())
    yield embedded
    task.cancel()
    await asyncio.wait([task])


async def test_a_replica_is_neither_started_nor_ready_before_it_claims_but_alive(embedded: Embedded) -> None:
    assert await embedded.web.get("/startupz") == (503, "starting: waits for the database\n")
    assert (await embedded.web.get("/readyz"))[0] == 503
    assert await embedded.web.get("/livez") == (200, "ok\n")


@pytest.mark.parametrize("name", LOOPS)
async def test_a_loop_that_stalls_makes_the_replica_unready_and_then_dead_and_is_named(
    running: Embedded, name: str
) -> None:
    assert set(running.replica.loops) == set(LOOPS)
    await running.web.answers("/readyz", 200)
    running.stall(name)
    assert await running.web.answers("/readyz", 503, text=f"loop {name} has made no progress for")
    said = await running.web.answers("/livez", 503)
    assert said.startswith(f"loop {name} has been stuck for")
    assert (await running.web.get("/startupz"))[0] == 200


async def test_where_every_loop_waits_the_database_does_not_answer_and_a_restart_would_not_help(
    running: Embedded,
) -> None:
    await running.web.answers("/readyz", 200)
    for name in LOOPS:
        # Which reads files, and gets on.
        if name != "reload":
            running.stall(name)
    await running.web.answers("/readyz", 503, text="loop sample has made no progress")
    stuck = running.replica.loops["claim"]
    async with asyncio.timeout(30):
        while stuck.stuck_s < 2.5 * STALL_S:
            await asyncio.sleep(0.05)
    assert await running.web.get("/livez") == (200, "ok\n")


async def test_a_loop_that_sleeps_as_planned_is_not_behind(running: Embedded) -> None:
    await running.web.answers("/readyz", 200)
    renew = running.replica.loops["renew"]  # sleeps for a third of a lease, 20 s
    async with asyncio.timeout(30):
        while renew.succeeded_s > time.monotonic() - 1.5 * STALL_S:
            await asyncio.sleep(0.05)
    assert renew.behind_s == 0
    assert await running.web.get("/readyz") == (200, "ok\n")


@pytest.fixture
async def installation(nest: Nest, tmp_path: Path, database: str) -> AsyncIterator[Installation]:
    """Processes that answer over HTTP, as `web` knows."""
    installation = Installation(nest, tmp_path, database)
    installation.environment["RELAY_WEB_PORT"] = str(free_port())
    yield installation
    await installation.close()


@pytest.fixture
def web(installation: Installation) -> Web:
    """The server of the one replica."""
    return Web(int(installation.environment["RELAY_WEB_PORT"]))


async def test_a_receiver_that_is_down_leaves_the_replica_ready(
    installation: Installation, web: Web, receiver: Receiver, connection: Connection
) -> None:
    receiver.answer = status(500)
    installation.configure({"shop": {"url": receiver.url()}, "gone": {"url": f"http://127.0.0.1:{free_port()}/"}})
    await connection.execute(
        "INSERT INTO outbox.job (topic, destination, payload)"
        " SELECT 't', destination, '{}' FROM unnest('{shop,gone}'::text[]) destination, generate_series(1, 30)"
    )
    await installation.start()
    down = [("shop", "status"), ("gone", "connect")]
    await web.scraped(
        lambda s: all(s.value("relay_attempts_failed_total", destination=d, error_class=c) >= 10 for d, c in down)
    )
    for path in ("/startupz", "/readyz", "/livez"):
        assert await web.get(path) == (200, "ok\n")


async def test_while_the_database_is_away_the_replica_is_not_ready_but_alive(
    installation: Installation, web: Web, receiver: Receiver, postgres: Postgres
) -> None:
    installation.configure({"shop": {"url": receiver.url()}})
    await installation.start()
    await web.answers("/readyz", 200)
    await asyncio.to_thread(postgres.stop)
    try:
        await web.answers("/readyz", 503, text="the database is away, as ")
        assert await web.get("/livez") == (200, "ok\n")
        assert await web.get("/startupz") == (200, "ok\n")
    finally:
        await asyncio.to_thread(postgres.start)
    await web.answers("/readyz", 200, timeout_s=60)


async def test_a_schema_that_this_version_cannot_use_makes_it_unready(
    installation: Installation, web: Web, receiver: Receiver, connection: Connection
) -> None:
    installation.configure({"shop": {"url": receiver.url()}})
    await installation.start()
    await web.answers("/readyz", 200)
    await connection.execute(
        "INSERT INTO outbox.migration (version, name, checksum, old_replicas_may_run) VALUES (99, '0099_x', 'x', false)"
    )
    try:
        await web.answers("/readyz", 503, text="0099_x")
        assert await web.get("/livez") == (200, "ok\n")
    finally:
        await connection.execute("DELETE FROM outbox.migration WHERE version = 99")
    await web.answers("/readyz", 200)


async def test_a_replica_that_stops_is_not_ready_and_answers_until_its_end(
    installation: Installation, web: Web, receiver: Receiver, connection: Connection
) -> None:
    answering = asyncio.Event()

    async def wait(_arrival: Arrival) -> http.Response:
        await answering.wait()
        return http.Response(status=204)

    receiver.answer = wait
    installation.configure({"shop": {"url": receiver.url()}})
    await connection.execute("INSERT INTO outbox.job (topic, destination, payload) VALUES ('t', 'shop', '{}')")
    replica = await installation.start()
    await receiver.wait_arrived(1)
    replica.signal(signal.SIGTERM)
    await web.answers("/readyz", 503, text="stopping: finishes what is in flight")
    assert await web.get("/livez") == (200, "ok\n")
    answering.set()
    assert await replica.ended() == 0


async def test_the_server_takes_no_signal_handler() -> None:
    ours = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    async with serve(build([]), host="127.0.0.1", port=0) as port:
        assert (await Web(port).get("/"))[0] == 404
        assert {number: signal.getsignal(number) for number in ours} == ours


async def test_a_signal_ends_a_replica_that_still_waits_for_the_database(
    installation: Installation, web: Web, receiver: Receiver
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        dsn = f"postgresql://nobody@127.0.0.1:{silent.getsockname()[1]}/nowhere"
        installation.configure({"shop": {"url": receiver.url()}}, database={"dsn": dsn})
        replica = await installation._spawn("one")
        await replica.event("web_started")
        assert await web.get("/startupz") == (503, "starting: waits for the database\n")
        assert await replica.stop() == 128 + signal.SIGTERM


async def test_the_server_leaves_signals_to_the_replica(
    installation: Installation, web: Web, receiver: Receiver, connection: Connection
) -> None:
    async def never(_arrival: Arrival) -> http.Response:
        await asyncio.Event().wait()
        raise AssertionError

    receiver.answer = never
    installation.configure({"shop": {"url": receiver.url()}})
    await connection.execute("INSERT INTO outbox.job (topic, destination, payload) VALUES ('t', 'shop', '{}')")
    replica = await installation.start()
    await receiver.wait_arrived(1)
    assert (await web.get("/livez"))[0] == 200
    replica.signal(signal.SIGINT)
    await replica.event("stopping", signal="SIGINT", at_once=False)
    replica.signal(signal.SIGINT)
    await replica.event("stopping", signal="SIGINT", at_once=True)
    assert await replica.ended() == 0
    assert replica.logged("replica_stopped")


async def test_a_port_that_is_taken_ends_the_start_with_a_sentence(
    installation: Installation, web: Web, receiver: Receiver
) -> None:
    installation.configure({"shop": {"url": receiver.url()}})
    with socket.create_server(("127.0.0.1", web.port)):
        done = await installation.command("run")
    assert done.code == 2
    assert done.error == (
        f"relay: web.host, web.port: cannot listen on 127.0.0.1:{web.port}: Address already in use; "
        "choose another port, or 0 for no server\n"
    )


async def test_without_a_port_there_is_no_server_and_nothing_of_it_in_memory() -> None:
    code = "import sys, relay.service; print([m for m in ('uvicorn', 'opentelemetry.sdk') if m in sys.modules])"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=subprocess.PIPE)
    output, _ = await process.communicate()
    assert output == b"[]\n"
