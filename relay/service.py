"""The composition root: builds a replica from its settings, runs it in one TaskGroup, and stops it in two phases.

claim → dispatch → deliver → settle, with renew, sweep and listen beside the line. The stages do not know each
other; what one needs of another is handed to it here as a function.
"""

import asyncio
import logging
import random
import secrets
import signal
import time
from collections.abc import Sequence

from relay import __version__
from relay.admin import Admin
from relay.claim import Claimer
from relay.config import Settings
from relay.database import Database
from relay.deliver import Deliverer
from relay.dispatch import Dispatcher
from relay.errors import SchemaError
from relay.listen import Listener
from relay.loop import Loop
from relay.migrate import compare
from relay.model import Destination, Job, Settlement
from relay.renew import Renewer
from relay.rows import Settled
from relay.sender import Sender
from relay.settle import Settler
from relay.store import Store
from relay.sweep import Sweeper
from relay.telemetry import event

_STARTUP_S = 30.0
# PostgreSQL cuts a connection's name at 63 bytes; the end of ours is what tells processes apart.
_NAME_BYTES = 50
# What is left after the drain to write the last outcomes.
_SETTLE_S = 4.0


async def run(settings: Settings) -> None:
    """Runs a replica until SIGTERM or SIGINT; a second signal cuts off what is in flight.

    Raises ConfigError, SchemaError or DatabaseUnavailableError when it cannot start.
    """
    destinations = settings.resolved_destinations()
    locked_by = f"{settings.replica.name}-{secrets.token_hex(4)}"
    comparison = await compare(settings.database.dsn.text())
    if not comparison.usable:
        raise SchemaError(comparison.sentence)
    database = settings.database
    connections = Database(
        database.dsn.text(),
        name=f"relay {locked_by[-_NAME_BYTES:]}",
        pool_size=database.pool_size,
        prepared_statements=database.prepared_statements,
        connect_timeout_s=database.connect_timeout_s,
        statement_timeout_s=database.statement_timeout_s,
    )
    store = Store(connections, locked_by=locked_by, lease_s=settings.replica.lease_s)
    async with connections, Sender() as sender:
        await connections.wait(_STARTUP_S)
        await _compare_registry(Admin(connections), destinations)
        event(
            logging.INFO,
            "replica_started",
            replica=locked_by,
            version=__version__,
            destinations=len(destinations),
            schema=comparison.sentence,
        )
        async with asyncio.TaskGroup() as group:
            replica = _Replica(settings, destinations, locked_by=locked_by, store=store, sender=sender, group=group)
            await replica.run()
        event(logging.INFO, "replica_stopped", replica=locked_by)


async def _compare_registry(admin: Admin, destinations: Sequence[Destination]) -> None:
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
    for name in registered.keys() - {d.name for d in destinations}:
        event(
            logging.WARNING, "destination_not_configured", destination=name, advice="its jobs wait for other replicas"
        )


class _Replica:
    """The stages of one process, wired."""

    def __init__(
        self,
        settings: Settings,
        destinations: Sequence[Destination],
        *,
        locked_by: str,
        store: Store,
        sender: Sender,
        group: asyncio.TaskGroup,
    ) -> None:
        rng = random.Random()
        replica, retention, database = settings.replica, settings.retention, settings.database
        self._drain_s = replica.drain_s
        self._group = group
        self._signals = 0
        self._told_to_stop = asyncio.Event()

        self._renewer = Renewer(store, replica.lease_s)
        self._settler = Settler(store, on_settled=self._on_settled, wake=self._wake_settle)
        self._dispatcher = Dispatcher(
            destinations,
            group=group,
            deliver=Deliverer(sender.send, rng).deliver,
            settle=self._settler.put,
            remaining_s=self._renewer.remaining_s,
            ring=self._ring,
            rng=rng,
        )
        self._claimer = Claimer(
            store,
            destinations,
            wanted=self._dispatcher.wanted,
            bytes_held=self._dispatcher.bytes_held,
            payload_budget_bytes=replica.payload_budget_bytes,
            on_claimed=self._on_claimed,
            note=self._dispatcher.note,
            wake=self._wake_claim,
            poll_s=replica.poll_s,
            notify=replica.notify,
            rng=rng,
        )
        sweeper = Sweeper(
            store,
            destinations,
            sweep_s=retention.sweep_s,
            done_s=retention.done_s,
            attempt_s=retention.attempt_s,
            batch=retention.batch,
            ring=self._claimer.ring,
            rng=rng,
        )
        steps = {
            "claim": self._claimer.step,
            "settle": self._settler.step,
            "renew": self._renewer.step,
            "reclaim": sweeper.reclaim,
            "heal": sweeper.heal,
            "retain": sweeper.retain,
        }
        self._loops = {name: Loop(name, step, rng) for name, step in steps.items()}
        self._listener = Listener(
            (database.listen_dsn or database.dsn).text(),
            ring=self._claimer.heard,
            connect_timeout_s=database.connect_timeout_s,
            name=f"relay {locked_by[-_NAME_BYTES:]} listen",
            rng=rng,
        )
        self._listens = replica.notify

    async def run(self) -> None:
        """Starts the loops, waits for a signal, and stops."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        tasks = {name: self._group.create_task(each.run(), name=name) for name, each in self._loops.items()}
        listening = self._group.create_task(self._listener.run(), name="listen") if self._listens else None
        await self._told_to_stop.wait()

        # First no new work: the claim under way ends, and what it brings is released.
        drained_s = time.monotonic() + self._drain_s
        for name in ("claim", "reclaim", "heal", "retain"):
            self._loops[name].stop()
        self._dispatcher.stop()
        if listening is not None:
            listening.cancel()
        await asyncio.wait([tasks["claim"]], timeout=self._drain_s)
        tasks["claim"].cancel()
        # Then what is in flight ends, or is cut off and released, while its leases are renewed.
        cut_off = await self._dispatcher.drain(max(0.0, drained_s - time.monotonic()))
        if cut_off:
            event(logging.WARNING, "drain_cut_off", jobs=cut_off, drain_s=self._drain_s)
        await self._write_the_rest(tasks["settle"])
        for task in tasks.values():
            task.cancel()

    async def _write_the_rest(self, settling: asyncio.Task[None]) -> None:
        deadline_s = time.monotonic() + _SETTLE_S
        while not self._settler.empty and time.monotonic() < deadline_s:
            await asyncio.sleep(0.01)
        if not self._settler.empty:
            event(logging.ERROR, "outcomes_not_written", advice="the database was away; their leases will lapse")
        self._loops["settle"].stop()
        await asyncio.wait([settling], timeout=_SETTLE_S)

    # The stages form a ring, so these are looked up when they are called, not when the stages are built.
    def _wake_claim(self) -> None:
        self._loops["claim"].wake()

    def _wake_settle(self) -> None:
        self._loops["settle"].wake()

    def _ring(self, destination: str) -> None:
        self._claimer.ring(destination)

    def _on_claimed(self, jobs: Sequence[Job], since_s: float) -> None:
        self._renewer.hold(jobs, since_s)
        self._dispatcher.accept(jobs)

    def _on_settled(self, batch: Sequence[Settlement], settled: Settled, since_s: float) -> None:
        self._renewer.drop(s.job for s in batch)
        self._on_claimed(settled.started, since_s)
        for name in set(settled.due):
            self._claimer.ring(name)

    def _on_signal(self, number: signal.Signals) -> None:
        self._signals += 1
        event(logging.INFO, "stopping", signal=number.name, at_once=self._signals > 1)
        self._told_to_stop.set()
        if self._signals > 1:
            self._dispatcher.hurry()
