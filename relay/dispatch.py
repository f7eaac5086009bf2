"""Owns the slots of each destination: starts claimed jobs when its gate lets them, and says how many more it wants."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from relay.line import Line
from relay.model import Destination, Ended, Job, Room, Settlement
from relay.telemetry.instruments import Slots

# A send starts only while the lease outlasts the deadline by this much: time to write the outcome.
LEASE_MARGIN_S = 5.0
# A lane goes on at once this often; then it stands in line behind the other jobs of its destination.
CHAIN_LIMIT = 8

Deliver = Callable[[Job, Destination], Awaitable[Ended]]


class Dispatcher:
    """Runs each delivery as a task of its own, never more of a destination than its gate grants.

    `group` owns the tasks. `deliver` makes one attempt, `settle` takes its outcome, `remaining_s` is what is
    left of a job's lease, and `ring` asks for a claim of a destination that has room again.
    """

    def __init__(
        self,
        destinations: Sequence[Destination],
        *,
        group: asyncio.TaskGroup,
        deliver: Deliver,
        settle: Callable[[Settlement], None],
        remaining_s: Callable[[Job], float],
        ring: Callable[[str], None],
        rng: random.Random,
    ) -> None:
        self._lines = {d.name: Line(d) for d in destinations}
        # Of destinations that were removed: what is in flight there counts when one comes back.
        self._former: dict[str, Line] = {}
        self._deliver = deliver
        self._settle = settle
        self._remaining_s = remaining_s
        self._ring = ring
        self._rng = rng
        self._group = group
        self._tasks: set[asyncio.Task[None]] = set()
        self._bytes_held = 0
        self._stopping = False

    def configure(self, destinations: Sequence[Destination]) -> None:
        """Serves these from now on: what waits for a removed one is given back, what is in flight ends as it began."""
        known = {**self._former, **self._lines}
        lines: dict[str, Line] = {}
        for destination in destinations:
            lines[destination.name] = line = known.pop(destination.name, None) or Line(destination)
            if line.destination != destination:
                line.configure(destination)
        # Another thread may be reading the old one.
        self._lines, self._former = lines, known
        for line in known.values():
            line.rest()
            self._release_waiting(line)
        for line in lines.values():
            line.rest()
            self._start(line)

    def wanted(self, name: str) -> Room:
        """What may be claimed of a destination now."""
        line, now_s = self._lines[name], time.monotonic()
        ahead = line.ahead(now_s)
        wanted = line.gate.free(now_s) + ahead - line.queued(now_s)
        if wanted <= 0 or self._stopping:
            self._watch(line, now_s)
            return Room(0, 0)
        retries = line.gate.free_for_retries(now_s) + ahead - line.waiting_retries
        return Room(wanted, max(0, min(wanted, retries)))

    def slots(self) -> list[Slots]:
        """What is in flight and why not more, for each destination."""
        now_s = time.monotonic()
        return [
            Slots(name, line.gate.in_flight, line.destination.max_in_flight, line.gate.state(now_s))
            for name, line in self._lines.items()
        ]

    def bytes_held(self, name: str) -> int:
        """The payloads of a destination that are in flight or wait for a slot; of all, for an empty name."""
        return self._lines[name].bytes_held if name else self._bytes_held

    def accept(self, jobs: Sequence[Job]) -> None:
        """Takes claimed jobs; each is started, or waits a moment for a slot, or is released."""
        touched = set()
        for job in jobs:
            line = self._lines.get(job.destination)
            if line is None:
                # Removed while the claim was under way.
                self._settle(Settlement(job, "pending", charged=False))
                continue
            self._hold(line, len(job.body))
            line.put(job)
            touched.add(job.destination)
        for name in touched:
            self._start(self._lines[name])

    def note(self, name: str, *, more: bool, retries: bool) -> None:
        """What the last claim saw of a destination: whether more may be due than it could take, and more retries."""
        line = self._lines[name]
        line.more, line.more_retries = more, retries

    def stop(self) -> None:
        """Starts nothing any more and gives back what waits; what is in flight goes on."""
        self._stopping = True
        for line in self._lines.values():
            line.rest()
            self._release_waiting(line)

    async def drain(self, timeout_s: float) -> int:
        """Waits until nothing is in flight, at most `timeout_s` seconds, then cuts off the rest; how many.

        Jobs cut off are given back without being charged.
        """
        late: set[asyncio.Task[None]] = set()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=timeout_s)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)
        return len(late)

    def hurry(self) -> None:
        """Cuts off what is in flight at once."""
        # A task that is cancelled before its first step runs no code that could give its job back.
        asyncio.get_running_loop().call_soon(self._cancel)

    def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _start(self, line: Line) -> None:
        now_s = time.monotonic()
        while not self._stopping and (job := line.next(now_s)) is not None:
            if self._remaining_s(job) < line.destination.deadline_s + LEASE_MARGIN_S:
                self._give_back(line, job)
                continue
            line.gate.take(1, now_s, retry=job.is_retry)
            task = self._group.create_task(self._attempt(line, job), name=f"deliver {line.destination.name} {job.id}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if line.waiting and (self._stopping or line.gate.state(now_s) != "closed"):
            # What cannot be sent for a while is of more use to the other replicas.
            self._release_waiting(line)
        self._watch(line, now_s)

    async def _attempt(self, line: Line, job: Job) -> None:
        try:
            ended = await self._deliver(job, line.destination)
        except asyncio.CancelledError:
            line.gate.give_back(1, retry=job.is_retry)
            self._give_back(line, job)
            raise
        now_s = time.monotonic()
        line.gate.finish(ended.signal, now_s, self._rng.random(), ended.hold_s, retry=job.is_retry)
        line.finished(ended, now_s)
        self._hold(line, -len(job.body))
        settlement = ended.settlement
        self._settle(replace(settlement, chain=True) if self._may_chain(line, settlement, now_s) else settlement)
        self._start(line)
        if line.is_low(now_s):
            self._ring(line.destination.name)

    def _may_chain(self, line: Line, settlement: Settlement, now_s: float) -> bool:
        ended = settlement.status != "pending" and not settlement.holds_lane
        room = line.gate.free(now_s) > line.queued(now_s) and self._lines.get(line.destination.name) is line
        return ended and room and settlement.job.chained < CHAIN_LIMIT and not self._stopping

    def _release_waiting(self, line: Line) -> None:
        while line.waiting:
            self._give_back(line, line.first())

    def _hold(self, line: Line, more_bytes: int) -> None:
        line.bytes_held += more_bytes
        self._bytes_held += more_bytes

    def _give_back(self, line: Line, job: Job) -> None:
        self._hold(line, -len(job.body))
        self._settle(Settlement(job, "pending", charged=False))

    def _watch(self, line: Line, now_s: float) -> None:
        """Comes back when time alone opens the gate: a token, the end of a hold, a probe."""
        if line.timer is not None or self._stopping:
            return
        change_s = line.gate.next_change_s(now_s)
        if change_s is None or change_s <= 0:
            return
        line.timer = asyncio.get_running_loop().call_later(change_s, self._gate_changed, line)

    def _gate_changed(self, line: Line) -> None:
        line.timer = None
        self._start(line)
        self._ring(line.destination.name)
