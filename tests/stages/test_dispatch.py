"""Slots: how many run, what waits, and what is given back."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from relay.dispatch import LEASE_MARGIN_S, Dispatcher
from relay.model import Destination, Ended, Job, Settlement
from tests.stages.stage import LEASE_S, job

SHOP = Destination("shop", "http://127.0.0.1/", max_in_flight=3)


@dataclass
class Line:
    """A dispatcher, with attempts that end when the test says so."""

    destination: Destination = SHOP
    remaining_s: float = LEASE_S
    running: dict[int, asyncio.Future[Ended]] = field(default_factory=dict)
    most_running: int = 0
    settled: list[Settlement] = field(default_factory=list)
    rung: list[str] = field(default_factory=list)

    async def deliver(self, each: Job, _destination: Destination) -> Ended:
        """One attempt."""
        ending: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        self.running[each.id] = ending
        self.most_running = max(self.most_running, len(self.running))
        try:
            return await ending
        finally:
            del self.running[each.id]

    def dispatcher(self, group: asyncio.TaskGroup) -> Dispatcher:
        """The dispatcher, with its tasks in `group`."""
        return Dispatcher(
            [self.destination],
            group=group,
            deliver=self.deliver,
            settle=self.settled.append,
            remaining_s=lambda _job: self.remaining_s,
            ring=self.rung.append,
            rng=random.Random(1),
        )

    async def until(self, true: Callable[[], bool]) -> None:
        """Let the tasks go on until it is so."""
        async with asyncio.timeout(10):
            while not true():
                await asyncio.sleep(0)

    async def end(self, each: Job, *, hold_s: float | None = None, holds_lane: bool = False) -> Settlement:
        """End an attempt as done, or with a Retry-After of `hold_s`; what was settled for it."""
        await self.until(lambda: each.id in self.running)
        before = len(self.settled)
        if hold_s is None:
            ended = Ended(Settlement(each, "dead" if holds_lane else "done", holds_lane=holds_lane), "success")
        else:
            ended = Ended(Settlement(each, "pending", delay_s=hold_s), "failure", hold_s)
        self.running[each.id].set_result(ended)
        await self.until(lambda: len(self.settled) > before)
        return next(s for s in self.settled[before:] if s.job.id == each.id)


def given_back(line: Line) -> list[int]:
    """The jobs that were released without being charged."""
    return [s.job.id for s in line.settled if (s.status, s.charged, s.delay_s) == ("pending", False, 0.0)]


async def test_a_delivery_cut_off_before_its_first_step_is_given_back() -> None:
    line = Line()
    async with asyncio.TaskGroup() as group:
        dispatcher = line.dispatcher(group)
        dispatcher.accept([job(1)])
        dispatcher.hurry()
        await line.until(lambda: bool(line.settled))
        assert dispatcher.wanted("shop") == (3, 2)
    assert given_back(line) == [1]
    assert dispatcher.bytes_held("shop") == 0


async def test_never_more_of_a_destination_run_than_its_max_in_flight() -> None:
    line = Line()
    jobs = [job(number) for number in range(1, 11)]
    async with asyncio.TaskGroup() as group:
        dispatcher = line.dispatcher(group)
        assert dispatcher.wanted("shop") == (3, 2)
        dispatcher.accept(jobs)
        await line.until(lambda: len(line.running) == 3)
        assert dispatcher.wanted("shop") == (0, 0)
        assert dispatcher.bytes_held("shop") == 100
        for each in jobs:
            await line.end(each)
    assert line.most_running == 3
    assert [s.job.id for s in line.settled] == [each.id for each in jobs]
    assert dispatcher.bytes_held("shop") == 0


async def test_retries_leave_a_slot_to_first_attempts_which_pass_them_by() -> None:
    line = Line()
    retries = [job(number, attempts=2) for number in (1, 2, 3, 4)]
    async with asyncio.TaskGroup() as group:
        dispatcher = line.dispatcher(group)
        dispatcher.accept(retries)
        await line.until(lambda: len(line.running) == 2)
        # One slot is free, and what waits takes none of it.
        assert dispatcher.wanted("shop") == (1, 0)
        dispatcher.accept([job(5)])
        await line.until(lambda: set(line.running) == {1, 2, 5})
        await line.end(job(5))
        assert set(line.running) == {1, 2}
        await line.end(retries[0])
        await line.until(lambda: set(line.running) == {2, 3})
        for each in retries[1:]:
            await line.end(each)
    # More where the slots have been quick: what they finish in a moment is claimed ahead.
    assert dispatcher.wanted("shop").retries >= 2


@pytest.mark.parametrize(
    ("due", "rung"),
    [
        ({"more": True, "retries": True}, (["shop"], True)),
        ({"more": False, "retries": True}, ([], True)),
        ({"more": False, "retries": False}, ([], False)),
    ],
)
async def test_retries_that_wait_for_retries_hold_up_the_next_claim_of_retries_only(
    due: dict[str, bool], rung: tuple[list[str], bool]
) -> None:
    line = Line()
    waiting = [job(number, attempts=2) for number in (1, 2, 3, 4)]
    async with asyncio.TaskGroup() as group:
        dispatcher = line.dispatcher(group)
        dispatcher.accept([*waiting, job(5)])
        dispatcher.note("shop", **due)
        await line.end(job(5))
        assert line.rung == rung[0]
        for each in waiting:
            await line.end(each)
        assert bool(line.rung) == rung[1]


async def test_a_retry_cut_off_leaves_its_slot_to_retries_again() -> None:
    line = Line()
    async with asyncio.TaskGroup() as group:
        dispatcher = line.dispatcher(group)
        dispatcher.accept([job(1, attempts=2), job(2, attempts=2)])
        await line.until(lambda: len(line.running) == 2)
        dispatcher.hurry()
        await line.until(lambda: len(line.settled) == 2)
        assert dispatcher.wanted("shop") == (3, 2)


async def test_a_job_whose_lease_does_not_cover_a_delivery_is_given_back_instead_of_sent() -> None:
    line = Line(remaining_s=SHOP.deadline_s + LEASE_MARGIN_S - 0.001)
    async with asyncio.TaskGroup() as group:
        line.dispatcher(group).accept([job(1)])
        line.remaining_s = SHOP.deadline_s + LEASE_MARGIN_S
        line.dispatcher(group).accept([job(2)])
        await line.end(job(2))
    assert given_back(line) == [1]


async def test_what_waits_for_a_slot_is_given_back_when_the_gate_closes() -> None:
    line = Line()
    async with asyncio.TaskGroup() as group:
        dispatcher = line.dispatcher(group)
        dispatcher.accept([job(number) for number in range(1, 6)])
        await line.end(job(1), hold_s=60)
        assert given_back(line) == [4, 5]
        assert dispatcher.wanted("shop") == (0, 0)
        # What was sent before the trouble was known ends as it ends.
        await line.end(job(2))
        await line.end(job(3))
        dispatcher.stop()


async def test_a_destination_that_was_held_is_claimed_again_when_the_time_is_over() -> None:
    line = Line()
    async with asyncio.TaskGroup() as group:
        dispatcher = line.dispatcher(group)
        dispatcher.accept([job(1)])
        await line.end(job(1), hold_s=0.05)
        assert dispatcher.wanted("shop") == (0, 0)
        await line.until(lambda: "shop" in line.rung)
        # A probe.
        assert dispatcher.wanted("shop") == (1, 1)


@pytest.mark.parametrize(("chained", "goes_on"), [(0, "at once"), (7, "at once"), (8, "in its turn")])
async def test_a_lane_goes_on_at_once_eight_times_in_a_row(chained: int, goes_on: str) -> None:
    line = Line()
    each = job(1, chained=chained)
    async with asyncio.TaskGroup() as group:
        line.dispatcher(group).accept([each])
        settlement = await line.end(each)
    assert settlement.chain == (goes_on == "at once")


async def test_a_lane_does_not_go_on_behind_a_dead_job_that_holds_it() -> None:
    line = Line()
    async with asyncio.TaskGroup() as group:
        line.dispatcher(group).accept([job(1)])
        settlement = await line.end(job(1), holds_lane=True)
    assert not settlement.chain


async def test_a_lane_does_not_go_on_at_once_while_other_jobs_wait_for_the_slot() -> None:
    line = Line()
    async with asyncio.TaskGroup() as group:
        line.dispatcher(group).accept([job(number) for number in range(1, 5)])
        assert not (await line.end(job(1))).chain
        for number in (2, 3, 4):
            assert (await line.end(job(number))).chain


async def test_a_stop_gives_back_what_waits_and_starts_nothing_more() -> None:
    line = Line()
    async with asyncio.TaskGroup() as group:
        dispatcher = line.dispatcher(group)
        dispatcher.accept([job(number) for number in range(1, 6)])
        await line.until(lambda: len(line.running) == 3)
        dispatcher.stop()
        assert given_back(line) == [4, 5]
        # A claim that was under way.
        dispatcher.accept([job(6)])
        assert given_back(line) == [4, 5, 6]
        for number in (1, 2, 3):
            assert not (await line.end(job(number))).chain
    assert dispatcher.bytes_held("shop") == 0


async def test_what_outlasts_the_drain_is_cut_off_and_given_back() -> None:
    line = Line()
    async with asyncio.TaskGroup() as group:
        dispatcher = line.dispatcher(group)
        dispatcher.accept([job(1), job(2)])
        await line.end(job(1))
        dispatcher.stop()
        assert await dispatcher.drain(0.01) == 1
    assert given_back(line) == [2]
    assert dispatcher.bytes_held("shop") == 0


async def test_what_waits_for_a_removed_destination_is_given_back_and_what_is_in_flight_ends() -> None:
    line = Line()
    jobs = [job(number) for number in range(1, 6)]
    async with asyncio.TaskGroup() as group:
        dispatcher = line.dispatcher(group)
        dispatcher.accept(jobs)
        await line.until(lambda: len(line.running) == 3)
        dispatcher.configure([])
        assert given_back(line) == [4, 5]
        assert dispatcher.slots() == []
        # Its lane does not go on here.
        assert not (await line.end(jobs[0])).chain
        # A claim that was under way brings one more.
        dispatcher.accept([job(6)])
        assert given_back(line) == [4, 5, 6]
        for each in jobs[1:3]:
            await line.end(each)
    assert [s.job.id for s in line.settled if s.status == "done"] == [1, 2, 3]


async def test_a_destination_that_comes_back_counts_what_is_still_in_flight() -> None:
    line = Line()
    async with asyncio.TaskGroup() as group:
        dispatcher = line.dispatcher(group)
        dispatcher.accept([job(1), job(2)])
        await line.until(lambda: len(line.running) == 2)
        dispatcher.configure([])
        dispatcher.configure([SHOP])
        assert dispatcher.wanted("shop").jobs == 1
        assert dispatcher.bytes_held("shop") == 20
        for number in (1, 2):
            await line.end(job(number))
    assert dispatcher.bytes_held("shop") == 0


async def test_more_slots_are_used_at_once_by_what_waits() -> None:
    line = Line()
    jobs = [job(number) for number in range(1, 6)]
    async with asyncio.TaskGroup() as group:
        dispatcher = line.dispatcher(group)
        dispatcher.accept(jobs)
        await line.until(lambda: len(line.running) == 3)
        dispatcher.configure([replace(SHOP, max_in_flight=5)])
        await line.until(lambda: len(line.running) == 5)
        for each in jobs:
            await line.end(each)
