"""What a loop survives, and when it steps."""

import asyncio
import logging
import random

import psycopg
import pytest

from relay.loop import Loop

NEVER = float("inf")


async def run(steps: list[float | BaseException]) -> list[float]:
    """Run a loop through these results of its step, wait for the last; when each step began (s, monotonic)."""
    began: list[float] = []
    clock = asyncio.get_running_loop().time

    async def step() -> float:
        began.append(clock())
        result = steps[len(began) - 1]
        if len(began) == len(steps):
            loop.stop()
        if isinstance(result, BaseException):
            raise result
        return result

    loop = Loop("test", step, random.Random(1))
    async with asyncio.timeout(30):
        await loop.run()
    return began


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


async def test_a_loop_outlives_a_database_that_is_away_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "relay")
    began = await run(
        [psycopg.OperationalError("away"), psycopg.OperationalError("away"), psycopg.InterfaceError(), 0, 0]
    )
    assert len(began) == 5
    assert logged(caplog) == ["database_away", "database_back"]


async def test_a_loop_waits_longer_each_time_the_database_is_still_away() -> None:
    away: list[float | BaseException] = [psycopg.OperationalError("away") for _ in range(5)]
    began = await run([*away, 0])
    # Doubling, with a jitter of half of it either way: the sum of two waits always grows.
    assert began[4] - began[2] > began[2] - began[0]


async def test_a_loop_outlives_a_bug_and_shows_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    assert len(await run([ZeroDivisionError("a bug"), 0])) == 2
    assert logged(caplog) == ["loop_crashed"]
    assert caplog.records[0].exc_info is not None
    assert isinstance(caplog.records[0].exc_info[1], ZeroDivisionError)


async def test_a_conflict_is_no_outage_and_the_step_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "relay")
    assert len(await run([psycopg.errors.LockNotAvailable("held"), psycopg.errors.DeadlockDetected("met"), 0])) == 3
    assert logged(caplog) == ["conflict", "conflict"]


async def test_a_loop_that_waits_for_ever_is_woken_and_told_to_stop() -> None:
    stepped = asyncio.Event()

    async def step() -> float:
        stepped.set()
        return NEVER

    loop = Loop("test", step, random.Random(1))
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        group.create_task(loop.run())
        for _ in range(3):
            await stepped.wait()
            stepped.clear()
            loop.wake()
        await stepped.wait()
        loop.stop()


async def test_a_loop_that_is_told_to_stop_finishes_the_step_under_way() -> None:
    inside, go_on, finished = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def step() -> float:
        inside.set()
        await go_on.wait()
        finished.set()
        return 0.0

    loop = Loop("test", step, random.Random(1))
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        group.create_task(loop.run())
        await inside.wait()
        loop.stop()
        go_on.set()
    assert finished.is_set()
