"""The composition root of `relay run`: a replica, what watches it, and the signals that stop it or change it."""

import asyncio
import contextlib
import logging
import random
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from relay import __version__
from relay.admin import Admin
from relay.config import Settings
from relay.config.difference import Configuration
from relay.database import Database
from relay.errors import SchemaError
from relay.loop import Loop
from relay.migrate import compare
from relay.model import Destination
from relay.reload import Reloader
from relay.replica import Replica
from relay.sender import Sender
from relay.telemetry import event, otlp

if TYPE_CHECKING:
    from starlette.routing import BaseRoute  # comes with the server

_STARTUP_S = 30.0
# PostgreSQL cuts a connection's name at 63 bytes; the end of ours is what tells processes apart.
_NAME_BYTES = 50


async def run(settings: Settings) -> None:
    """Runs a replica until SIGTERM or SIGINT; a second signal cuts off what is in flight. SIGHUP reads `settings` anew.

    Raises ConfigError, SchemaError or DatabaseUnavailableError when it cannot start.
    """
    # Until it is a replica, a signal just ends it: between two callbacks, so that all below is closed in order.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, sys.exit, 128 + signal.SIGTERM)
    destinations, skipped = settings.resolved_destinations(), settings.broken_destinations()
    locked_by = f"{settings.replica.name}-{secrets.token_hex(4)}"
    name = f"relay {locked_by[-_NAME_BYTES:]}"
    connections, sender, traces = _database(settings, name), Sender(), otlp.traces(locked_by)
    replica = Replica(
        settings,
        destinations,
        locked_by=locked_by,
        name=name,
        database=connections,
        sender=sender,
        traces=traces,
    )
    # Until it is heeded: a configuration that changes meanwhile is found by the first look.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    async with _watched(replica, settings, locked_by):
        comparison = await compare(settings.database.dsn.text())
        if not comparison.usable:
            raise SchemaError(comparison.sentence)
        async with connections, sender:
            await connections.wait(_STARTUP_S)
            for skipped_name, why in skipped.items():
                event(logging.ERROR, "destination_skipped", destination=skipped_name, why=why)
            await _compare_registry(Admin(connections), destinations, skipped.keys())
            _heed_signals(replica)
            _heed_changes(replica, sender, connections, Configuration(settings, destinations))
            event(
                logging.INFO,
                "replica_started",
                replica=locked_by,
                version=__version__,
                destinations=len(destinations),
                schema=comparison.sentence,
                traces=traces is not None,
            )
            await replica.run()
            if traces is not None:
                await traces.close()
    event(logging.INFO, "replica_stopped", replica=locked_by)


def _database(settings: Settings, name: str, *, pool_size: int | None = None) -> Database:
    database = settings.database
    return Database(
        database.dsn.text(),
        name=name,
        pool_size=pool_size or database.pool_size,
        prepared_statements=database.prepared_statements,
        connect_timeout_s=database.connect_timeout_s,
        statement_timeout_s=database.statement_timeout_s,
    )


@contextlib.asynccontextmanager
async def _watched(replica: Replica, settings: Settings, locked_by: str) -> AsyncIterator[None]:
    """Health and metrics for whoever asks, from before the database is looked for until all is written."""
    exporter, port = otlp.metrics(), settings.web.port
    if exporter is None and not port:
        yield
        return
    # A replica that nobody watches needs neither the SDK nor a server in memory.
    from relay.telemetry.metrics import Metrics  # noqa: PLC0415

    metrics = Metrics(replica.sources(), exporter, replica=locked_by)
    try:
        async with _served(replica, metrics.text, settings, locked_by) if port else contextlib.nullcontext():
            yield
    finally:
        await metrics.close()


@contextlib.asynccontextmanager
async def _served(
    replica: Replica, text: Callable[[], bytes], settings: Settings, locked_by: str
) -> AsyncIterator[None]:
    from relay.web import health, metrics, server  # noqa: PLC0415

    database, web = settings.database, settings.web
    # A step may run a few statements, of which one at most waits as long as a statement may.
    stall_s = 2 * database.statement_timeout_s + database.connect_timeout_s
    routes = [*health.routes(health.Health(replica, stall_s=stall_s)), *metrics.routes(text)]
    async with (
        _dashboard(replica, settings, locked_by) as pages,
        server.serve(server.build([*routes, *pages]), host=web.host, port=web.port),
    ):
        event(logging.INFO, "web_started", host=web.host, port=web.port, dashboard=bool(pages))
        yield


@contextlib.asynccontextmanager
async def _dashboard(replica: Replica, settings: Settings, locked_by: str) -> AsyncIterator["Sequence[BaseRoute]"]:
    """The dashboard and the API, on connections of their own; nothing without a token."""
    tokens = settings.resolved_tokens()
    if not tokens:
        yield []
        return
    from relay.web.admin.desk import Desk  # noqa: PLC0415
    from relay.web.admin.mount import mount  # noqa: PLC0415
    from relay.web.admin.traffic import Traffic  # noqa: PLC0415

    sources = replica.sources()
    traffic = Traffic(sources.tally)
    turning = asyncio.create_task(traffic.run(), name="traffic")
    async with _database(settings, "relay web", pool_size=2) as connections:
        desk = Desk(
            connections,
            replica=locked_by,
            budgets=replica.budgets,
            breakers=lambda: {each.destination: each.state for each in sources.slots()},
            traffic=traffic,
        )
        try:
            yield [mount(desk, tokens)]
        finally:
            turning.cancel()


def _heed_changes(replica: Replica, sender: Sender, connections: Database, configuration: Configuration) -> None:
    """A changed configuration is taken over while it runs, and looked for at once after a SIGHUP."""

    async def compare(destinations: Sequence[Destination], skipped: AbstractSet[str]) -> None:
        await _compare_registry(Admin(connections), destinations, skipped)

    reloader = Reloader(configuration, replica=replica, sender=sender, compare=compare)
    loop = Loop("reload", reloader.step, random.Random())
    # Another thread may be reading the old one.
    replica.loops = {**replica.loops, loop.name: loop}

    def ask() -> None:
        reloader.ask()
        loop.wake()

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, ask)


async def _compare_registry(admin: Admin, destinations: Sequence[Destination], skipped: AbstractSet[str]) -> None:
    """Says where the registry differs from this configuration; only `relay sync` changes it."""
    registered = {r.name: r for r in await admin.registry() if not r.retired}
    for destination in destinations:
        known = registered.get(destination.name)
        if known is None:
            event(
                logging.WARNING, "destination_not_registered", destination=destination.name, advice="run `relay sync`"
            )
        elif (set(known.topics), known.on_dead) != (set(destination.topics), destination.on_dead):
            event(logging.WARNING, "destination_differs", destination=destination.name, advice="run `relay sync`")
    for name in registered.keys() - {d.name for d in destinations} - skipped:
        event(
            logging.WARNING, "destination_not_configured", destination=name, advice="its jobs wait for other replicas"
        )


def _heed_signals(replica: Replica) -> None:
    def stop(number: signal.Signals) -> None:
        event(logging.INFO, "stopping", signal=number.name, at_once=replica.stopping)
        replica.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop, number)
