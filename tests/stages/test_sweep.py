"""What any replica does for all of them: it takes back what lapsed, lets lanes go on, and says so."""

import logging
import random
from collections.abc import Sequence

import psycopg
import pytest

from relay.model import Job
from relay.rows import Reclaimed
from relay.store import Store
from relay.sweep import Sweeper
from tests.conftest import Connection
from tests.store.jobs import Jobs, claim, dead, webhook

ROW_LOCK = b"SELECT FROM outbox.job WHERE id = %s FOR UPDATE"
SWEEP_S = 10.0


class Sweep:
    """A sweeper of destinations that skip dead jobs, all of them after one attempt; whom it rang for."""

    def __init__(self, store: Store, *names: str, batch: int = 100) -> None:
        self.rung: list[str] = []
        self.reclaimed: list[int] = []
        self.sweeper = Sweeper(
            store,
            [webhook(name, on_dead="skip", max_attempts=1) for name in names],
            sweep_s=SWEEP_S,
            batch=batch,
            ring=self.rung.append,
            on_reclaimed=self._took,
            rng=random.Random(1),
        )

    def _took(self, reclaimed: Sequence[Reclaimed]) -> None:
        self.reclaimed += [job.id for job in reclaimed]


@pytest.fixture(autouse=True)
def _everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


@pytest.fixture
def jobs(connection: Connection) -> Jobs:
    """Producer and witness."""
    return Jobs(connection)


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, int]]:
    """The events, each with its level."""
    return [(record.getMessage(), record.levelno) for record in caplog.records]


async def test_what_is_taken_back_is_told_and_claimed_at_once(
    store: Store, jobs: Jobs, caplog: pytest.LogCaptureFixture
) -> None:
    [id_] = [job.id for job in await lapsed(store, jobs, "a")]
    sweep = Sweep(store, "a", "b")
    assert 0.8 * SWEEP_S <= await sweep.sweeper.reclaim() <= 1.2 * SWEEP_S
    assert (sweep.reclaimed, sweep.rung) == ([id_], ["a"])
    assert told(caplog) == [("job_reclaimed", logging.WARNING)]


async def test_a_lane_that_was_stranded_by_hand_is_told_as_an_error_and_claimed_at_once(
    store: Store, jobs: Jobs, caplog: pytest.LogCaptureFixture
) -> None:
    await jobs.add_many(2, "e", status="blocked")
    sweep = Sweep(store, "a")
    assert await sweep.sweeper.heal() >= 0.8 * 2 * SWEEP_S
    assert await jobs.statuses() == ["pending", "blocked"]
    assert (told(caplog), sweep.rung, sweep.sweeper.healed) == ([("lane_healed", logging.ERROR)], ["a"], 1)
    await sweep.sweeper.heal()
    assert len(caplog.records) == 1


async def test_more_standing_lanes_than_one_step_releases_are_looked_for_soon(
    store: Store, jobs: Jobs, caplog: pytest.LogCaptureFixture
) -> None:
    await standing(store, jobs, 3)
    sweep = Sweep(store, "a", batch=2)
    pauses_s = [await sweep.sweeper.heal() for _ in range(3)]
    assert [pause_s < 2.0 for pause_s in pauses_s] == [True, False, False]
    assert told(caplog) == [("standing_lanes_released", logging.INFO)] * 2


async def test_a_dead_job_that_somebody_holds_keeps_no_other_lane_standing(
    store: Store, jobs: Jobs, database: str
) -> None:
    held, *_ = await standing(store, jobs, 3)
    sweep = Sweep(store, "a")
    async with await psycopg.AsyncConnection.connect(database) as somebody:
        await somebody.execute(ROW_LOCK, [held])
        await sweep.sweeper.heal()
        assert await jobs.statuses() == ["dead", "blocked", *["dead", "pending"] * 2]
    await sweep.sweeper.heal()
    assert await jobs.statuses() == ["dead", "pending"] * 3


async def test_a_holder_that_somebody_holds_does_not_keep_stranded_lanes_from_being_found(
    store: Store, jobs: Jobs, database: str
) -> None:
    late = await jobs.skip_id()
    await standing(store, jobs, 1)
    await jobs.add("e0", id=late)
    await jobs.add_many(2, "stranded", status="blocked")
    sweep = Sweep(store, "a")
    async with await psycopg.AsyncConnection.connect(database) as somebody:
        await somebody.execute(ROW_LOCK, [late])
        with pytest.raises(psycopg.errors.LockNotAvailable):
            await sweep.sweeper.heal()
    assert sweep.rung == ["a"]
    assert await jobs.stranded() == []


async def test_a_successor_that_somebody_holds_keeps_no_other_destinations_job_with_a_dead_replica(
    store: Store, jobs: Jobs, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    await lapsed(store, jobs, "a")
    held = await jobs.add("e", status="blocked")
    [other] = [job.id for job in await lapsed(store, jobs, "b")]
    sweep = Sweep(store, "a", "b")
    async with await psycopg.AsyncConnection.connect(database) as somebody:
        await somebody.execute(ROW_LOCK, [held])
        await sweep.sweeper.reclaim()
        assert (sweep.reclaimed, sweep.rung) == ([other], ["b"])
    assert told(caplog) == [("conflict", logging.INFO), ("job_reclaimed", logging.WARNING)]
    await sweep.sweeper.reclaim()
    assert sweep.rung == ["b", "a"]
    assert await jobs.statuses(held) == ["pending"]


async def lapsed(store: Store, jobs: Jobs, destination: str) -> list[Job]:
    """One running job of the lane `e`, whose lease has lapsed."""
    await jobs.add("e", destination)
    running = await claim(store, destination)
    await jobs.connection.execute(
        "UPDATE outbox.job SET locked_until = now() - interval '1 s' WHERE status = 'running'"
    )
    return running


async def standing(store: Store, jobs: Jobs, lanes: int) -> list[int]:
    """Lanes of two jobs, each standing behind the first, which is dead; those."""
    for lane in range(lanes):
        await jobs.add_many(2, f"e{lane}")
    heads = await claim(store)
    await store.settle([dead(job, blocks=True) for job in heads])
    return [job.id for job in heads]
