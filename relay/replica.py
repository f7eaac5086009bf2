"""The pipeline of one process: its stages, wired, in one TaskGroup.

claim → dispatch → deliver → settle, with scout, renew, sweep, retain, sample and listen beside the line. The stages do
not know each other; what one needs of another is handed to it here as a function.
"""

import asyncio
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from relay.claim import Claimer
from relay.config import Settings
from relay.database import Database
from relay.deliver import Deliverer
from relay.dispatch import Dispatcher
from relay.listen import Listener
from relay.loop import Loop
from relay.model import Destination, Job, Settlement
from relay.renew import Renewer
from relay.retain import Retainer
from relay.rows import Settled
from relay.sample import Sampler
from relay.scout import Scout
from relay.sender import Sender
from relay.settle import Settler
from relay.stop import stop
from relay.store import Store
from relay.sweep import Sweeper
from relay.telemetry.instruments import Sources
from relay.telemetry.tally import Tally

if TYPE_CHECKING:
    from relay.telemetry.traces import Traces  # imported where spans are made; see relay.telemetry.otlp


class Replica:
    """One replica. `locked_by` names it in leases, `name` on its connections; each is this process's alone."""

    def __init__(
        self,
        settings: Settings,
        destinations: Sequence[Destination],
        *,
        locked_by: str,
        name: str,
        database: Database,
        sender: Sender,
        traces: "Traces | None",
    ) -> None:
        rng = random.Random()
        replica, retention = settings.replica, settings.retention
        self._drain_s = replica.drain_s
        self._group = asyncio.TaskGroup()
        self._traces = traces
        self._told_to_stop = asyncio.Event()
        self._database = database
        self._tally = Tally(each.name for each in destinations)
        #: `max_attempts` of each destination, by name.
        self.budgets = _budgets(settings)
        #: Whether the configuration on disk is refused, and the one before it in use.
        self.outdated = False
        #: Whether it has begun to claim.
        self.started = False

        self._store = store = Store(
            database, locked_by=locked_by, lease_s=replica.lease_s, keep_done=retention.done_s > 0
        )
        self._renewer = Renewer(store, replica.lease_s)
        self._settler = Settler(store, on_settled=self._on_settled, wake=self._wake_settle)
        self._dispatcher = Dispatcher(
            destinations,
            group=self._group,
            deliver=Deliverer(sender.send, rng, traces).deliver,
            settle=self._on_ended,
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
            scout=self._wake_scout,
            poll_s=replica.poll_s,
            notify=replica.notify,
            rng=rng,
        )
        self._scout = Scout(
            store, found=self._claimer.found, busy=lambda: self._claimer.busy, poll_s=replica.poll_s, rng=rng
        )
        self._sweeper = Sweeper(
            store,
            destinations,
            sweep_s=retention.sweep_s,
            batch=retention.batch,
            ring=self._claimer.ring,
            on_reclaimed=self._tally.reclaimed,
            rng=rng,
        )
        self._retainer = Retainer(store, **retention.model_dump(), ring=self._claimer.ring, rng=rng)
        #: Takes and reads the gauges that cost a query, and looks at the schema while it is there.
        self.sampler = Sampler(database, locked_by=locked_by, every_s=2 * retention.sweep_s, rng=rng)
        steps = {
            "claim": self._claimer.step,
            "scout": self._scout.step,
            "settle": self._settler.step,
            "renew": self._renewer.step,
            "reclaim": self._sweeper.reclaim,
            "heal": self._sweeper.heal,
            "retain": self._retainer.step,
            "sample": self.sampler.step,
        }
        self.loops = {step_name: Loop(step_name, step, rng) for step_name, step in steps.items()}
        self._listener = Listener(
            (settings.database.listen_dsn or settings.database.dsn).text(),
            ring=self._claimer.heard,
            connect_timeout_s=settings.database.connect_timeout_s,
            name=f"{name} listen",
            rng=rng,
        )
        self._listens = replica.notify

    @property
    def stopping(self) -> bool:
        """Whether it was told to stop."""
        return self._told_to_stop.is_set()

    def sources(self) -> Sources:
        """What its metrics are read from."""
        return Sources(
            tally=self._tally,
            leases_lost=lambda: self._renewer.lost,
            lanes_healed=lambda: self._sweeper.healed,
            slots=self._dispatcher.slots,
            behind_s=lambda: [(each.name, each.behind_s) for each in self.loops.values()],
            pool=self._database.pool,
            sample=lambda: self.sampler.gauges,
            sample_age_s=lambda: self.sampler.age_s,
            outdated=lambda: self.outdated,
        )

    def configure(self, settings: Settings, destinations: Sequence[Destination]) -> None:
        """Goes on with these destinations and this retention; every other setting stays as it is."""
        retention = settings.retention
        self._tally.configure(each.name for each in destinations)
        self.budgets.clear()
        self.budgets.update(_budgets(settings))
        self._dispatcher.configure(destinations)
        self._claimer.configure(destinations)
        self._store.keep_done = retention.done_s > 0
        self._sweeper.configure(destinations, sweep_s=retention.sweep_s, batch=retention.batch)
        self._retainer.configure(**retention.model_dump())
        self.sampler.every_s = 2 * retention.sweep_s
        for name in ("reclaim", "heal", "retain", "sample"):
            self.loops[name].wake()

    async def run(self) -> None:
        """Runs until `stop`, and ends in order."""
        async with self._group as group:
            tasks = {name: group.create_task(each.run(), name=name) for name, each in self.loops.items()}
            listening = group.create_task(self._listener.run(), name="listen") if self._listens else None
            self.started = True
            await self._told_to_stop.wait()
            if listening is not None:
                listening.cancel()
            await stop(self.loops, tasks, dispatcher=self._dispatcher, settler=self._settler, drain_s=self._drain_s)

    def stop(self) -> None:
        """Ends `run`: nothing new is started, what is in flight may end. Once more, and it is cut off."""
        if self.stopping:
            self._dispatcher.hurry()
        self._told_to_stop.set()

    # The stages form a ring, so these are looked up when they are called, not when the stages are built.
    def _wake_claim(self) -> None:
        self.loops["claim"].wake()

    def _wake_scout(self) -> None:
        self.loops["scout"].wake()

    def _wake_settle(self) -> None:
        self.loops["settle"].wake()

    def _ring(self, destination: str) -> None:
        self._claimer.ring(destination)

    def _on_claimed(self, jobs: Sequence[Job], since_s: float) -> None:
        self._tally.claim(jobs, since_s)
        if self._traces is not None:
            self._traces.claimed(len(jobs), since_s)
        self._take(jobs, since_s)

    def _take(self, jobs: Sequence[Job], since_s: float) -> None:
        self._renewer.hold(jobs, since_s)
        self._dispatcher.accept(jobs)

    def _on_ended(self, settlement: Settlement) -> None:
        self._tally.ended(settlement)
        self._settler.put(settlement)

    def _on_settled(self, batch: Sequence[Settlement], settled: Settled, since_s: float) -> None:
        self._tally.settle(batch, settled, since_s)
        if self._traces is not None:
            self._traces.settled(len(batch), since_s)
        self._renewer.drop(s.job for s in batch)
        self._take(settled.started, since_s)
        for name in set(settled.due):
            self._claimer.ring(name)


def _budgets(settings: Settings) -> dict[str, int]:
    return {name: each.retry.max_attempts for name, each in settings.destinations.items()}
