"""Results are written together, each only once, whatever holds one of them up."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import psycopg
import pytest

from relay.database import UNAVAILABLE
from relay.demo.postgres import Postgres
from relay.loop import Loop
from relay.model import Settlement
from relay.rows import Settled
from relay.settle import Settler
from relay.store import Store
from tests.conftest import Connection
from tests.stages.stage import claim, insert, statuses


@dataclass
class Book:
    """A settler, and what it reported."""

    store: Store
    written: dict[int, bool] = field(default_factory=dict)
    started: list[int] = field(default_factory=list)
    batches: int = 0
    woken: int = 0
    loop: Loop | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.settler = Settler(self.store, on_settled=self._on_settled, wake=self._wake)

    def _on_settled(self, batch: Sequence[Settlement], settled: Settled, _since_s: float) -> None:
        self.batches += 1
        self.written |= {each.job.id: each.job.id in settled.ids for each in batch}
        self.started += [each.id for each in settled.started]
        self.changed.set()

    def _wake(self) -> None:
        self.woken += 1
        if self.loop is not None:
            self.loop.wake()

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait until what was reported satisfies it."""
        async with asyncio.timeout(30):
            while not true():
                await self.changed.wait()
                self.changed.clear()


@pytest.fixture
def book(store: Store) -> Book:
    """A settler on the emptied database."""
    return Book(store)


async def run_beside(book: Book, story: Callable[[], Awaitable[None]]) -> None:
    """The settler's loop as a replica runs it, for as long as the story takes."""
    loop = book.loop = Loop("settle", book.settler.step, random.Random(1))
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(loop.run())
        await story()
        loop.stop()


async def test_what_ended_together_is_written_together_and_reported_once(book: Book, connection: Connection) -> None:
    await insert(connection, 20)
    for each in await claim(book.store, 20):
        book.settler.put(Settlement(each, "done"))
    assert book.woken == 20
    assert not book.settler.empty
    assert await book.settler.step() == float("inf")
    assert (book.batches, book.settler.empty) == (1, True)
    assert book.written == dict.fromkeys(range(1, 21), True)
    assert await statuses(connection) == ["done"] * 20
    assert await book.settler.step() == float("inf")
    assert book.batches == 1


async def test_a_finished_job_starts_the_next_of_its_lane_in_the_same_transaction(
    book: Book, connection: Connection
) -> None:
    await insert(connection, 3, "lane")
    [first] = await claim(book.store, 8)
    book.settler.put(Settlement(first, "done", chain=True))
    await book.settler.step()
    assert book.started == [2]
    assert await statuses(connection) == ["done", "running", "blocked"]


async def test_a_result_that_came_too_late_is_reported_as_not_ours(
    book: Book, other_store: Store, connection: Connection
) -> None:
    await insert(connection, 1)
    [mine] = await claim(book.store, 1)
    await connection.execute("UPDATE outbox.job SET status = 'pending', locked_by = NULL, locked_until = NULL")
    [theirs] = await claim(other_store, 1)
    assert theirs.claims == mine.claims + 1
    book.settler.put(Settlement(mine, "dead"))
    await book.settler.step()
    assert book.written == {1: False}
    assert await statuses(connection) == ["running"]


@pytest.fixture
async def foreign(connection: Connection, database: str) -> AsyncIterator[psycopg.AsyncConnection]:
    """Somebody's session, which can hold rows."""
    del connection
    async with await psycopg.AsyncConnection.connect(database) as foreign:
        yield foreign


async def test_a_row_that_somebody_holds_is_set_aside_for_a_moment_while_the_other_results_are_written(
    book: Book, connection: Connection, foreign: psycopg.AsyncConnection
) -> None:
    await insert(connection, 3)
    jobs = await claim(book.store, 3)
    await foreign.execute("SELECT FROM outbox.job WHERE id = 3 FOR UPDATE")
    for each in jobs:
        book.settler.put(Settlement(each, "done"))
    assert await book.settler.step() <= 0.5
    assert book.written == {1: True, 2: True}
    assert await statuses(connection) == ["done", "done", "running"]
    assert not book.settler.empty
    await foreign.commit()

    async def story() -> None:
        await book.until(lambda: 3 in book.written)

    await run_beside(book, story)
    assert await statuses(connection) == ["done"] * 3
    assert book.settler.empty


async def test_a_row_that_stays_held_is_tried_by_itself_and_holds_up_no_other_result_again(
    book: Book, connection: Connection, foreign: psycopg.AsyncConnection
) -> None:
    await insert(connection, 4)
    held, *others = await claim(book.store, 4)
    await foreign.execute("SELECT FROM outbox.job WHERE id = 1 FOR UPDATE")
    book.settler.put(Settlement(held, "done"))
    # Until it is due again.
    await asyncio.sleep(await book.settler.step())
    for each in others:
        book.settler.put(Settlement(each, "done"))
    while len(book.written) < 3:
        await book.settler.step()
    assert book.written == dict.fromkeys((2, 3, 4), True)
    assert book.batches == 1


async def test_results_outlive_a_database_that_is_away(book: Book, connection: Connection, postgres: Postgres) -> None:
    await insert(connection, 3)
    jobs = await claim(book.store, 3)
    await asyncio.to_thread(postgres.stop)
    try:
        for each in jobs:
            book.settler.put(Settlement(each, "done"))
        with pytest.raises(UNAVAILABLE):
            await book.settler.step()
        assert not book.settler.empty
        assert book.batches == 0
    finally:
        await asyncio.to_thread(postgres.start)

    async def story() -> None:
        await book.until(lambda: len(book.written) == 3)

    await run_beside(book, story)
    assert book.written == dict.fromkeys((1, 2, 3), True)
    assert book.batches == 1
