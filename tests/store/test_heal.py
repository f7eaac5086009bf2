"""The safety net below the lanes: it finds what was broken by hand, and otherwise nothing."""

import pytest

from relay.store import Store
from tests.store.conftest import ROLES
from tests.store.jobs import Jobs, claim, claim_ids, dead, retry

START = ("", "")


async def strand(jobs: Jobs, lanes: int, destination: str = "a") -> None:
    """Lanes whose first job is blocked behind nothing."""
    await jobs.connection.execute(
        """INSERT INTO outbox.job (destination, topic, entity_key, payload, status)
           SELECT %s, 't', 'e' || to_char(n, 'FM00000'), '{}', 'blocked'
             FROM generate_series(1, %s) n, generate_series(1, 2)""",
        [destination, lanes],
    )


@pytest.mark.parametrize("role", list(ROLES), indirect=True)
async def test_a_lane_that_was_stranded_by_hand_goes_on(store: Store, jobs: Jobs) -> None:
    await strand(jobs, 1)
    assert await store.heal(START, limit=10) == ([("a", "e00001")], START)
    assert await jobs.statuses() == ["pending", "blocked"]
    assert await claim_ids(store) == [1]


async def test_lanes_in_every_ordinary_state_are_left_alone(store: Store, jobs: Jobs) -> None:
    for lane in ("running", "retried", "standing"):
        await jobs.add_many(2, lane)
    lanes = {job.entity_key: job for job in await claim(store)}
    await store.settle([retry(lanes["retried"]), dead(lanes["standing"], blocks=True)])
    await jobs.add_many(2, "pending")
    await jobs.add_many(2)
    before = await jobs.value("SELECT array_agg(xmin::text ORDER BY id) FROM outbox.job")
    assert await store.heal(START, limit=10) == ([], START)
    assert await jobs.value("SELECT array_agg(xmin::text ORDER BY id) FROM outbox.job") == before


async def test_a_late_lower_id_behind_a_running_job_is_not_stranded(store: Store, jobs: Jobs) -> None:
    late = await jobs.skip_id()
    await jobs.add("e")
    await claim(store)
    await jobs.add("e", id=late)
    await claim(store)
    assert await jobs.statuses() == ["blocked", "running"]
    assert await store.heal(START, limit=10) == ([], START)


async def test_a_walk_goes_on_where_the_last_one_stopped(store: Store, jobs: Jobs) -> None:
    await strand(jobs, 5)
    await strand(jobs, 2, destination="b")
    healed, after = [], START
    steps = []
    while True:
        found, after = await store.heal(after, limit=2)
        healed += found
        steps.append(len(found))
        if after == START:
            break
    assert steps == [2, 2, 2, 1]
    assert healed == [("a", f"e0000{n}") for n in range(1, 6)] + [("b", "e00001"), ("b", "e00002")]


async def test_a_walk_over_thousands_of_lanes_finds_the_one_that_is_stranded(store: Store, jobs: Jobs) -> None:
    await strand(jobs, 2500)
    await jobs.connection.execute("UPDATE outbox.job SET status = 'pending' WHERE entity_key <> 'e02222'")
    found, calls, after = [], 0, START
    while calls == 0 or after != START:
        healed, after = await store.heal(after, limit=1000)
        found += healed
        calls += 1
    assert (found, calls) == ([("a", "e02222")], 3)
    assert await jobs.stranded() == []


@pytest.mark.parametrize("role", list(ROLES), indirect=True)
async def test_standing_lanes_go_on_when_their_destination_skips(store: Store, jobs: Jobs) -> None:
    head, second = await jobs.add_many(2, "e")
    await store.settle([dead((await claim(store))[0], blocks=True)])
    assert await store.release_standing_lanes(["a"], limit=10) == 1
    assert await jobs.statuses(head, second) == ["dead", "pending"]
    assert await claim_ids(store) == [second]


async def test_standing_lanes_of_another_destination_stay(store: Store, jobs: Jobs) -> None:
    head, second = await jobs.add_many(2, "e", destination="b")
    await store.settle([dead((await claim(store, "b"))[0], blocks=True)])
    assert await store.release_standing_lanes(["a"], limit=10) == 0
    assert await jobs.statuses(head, second) == ["dead", "blocked"]


async def test_standing_lanes_are_released_no_more_than_asked_at_a_time(store: Store, jobs: Jobs) -> None:
    for lane in range(5):
        await jobs.add_many(2, f"e{lane}")
    await store.settle([dead(job, blocks=True) for job in await claim(store)])
    assert [await store.release_standing_lanes(["a"], limit=2) for _ in range(4)] == [2, 2, 1, 0]
    assert await jobs.count("pending") == 5


async def test_dead_jobs_without_an_entity_stand_in_no_lane(store: Store, jobs: Jobs) -> None:
    await jobs.add()
    await store.settle([dead((await claim(store))[0], blocks=False)])
    assert await store.release_standing_lanes(["a"], limit=10) == 0
