"""What follows in the same transaction: the lane goes on; whatever defaults the relay's role has."""

from collections.abc import Awaitable, Callable

import pytest
from psycopg import sql

from relay.admin import Admin
from relay.database import Database
from relay.store import Store
from tests.store.conftest import ROLES
from tests.store.jobs import Jobs, claim, claim_ids, dead, done, release, retry

pytestmark = pytest.mark.parametrize("role", list(ROLES), indirect=True)


async def test_a_chained_successor_starts_in_the_same_transaction(store: Store, jobs: Jobs) -> None:
    head, second, third = await jobs.add_many(3, "e")
    [job] = await claim(store)
    settled = await store.settle([done(job, chain=True)])
    assert [(job.id, job.attempts, job.claims, job.chained) for job in settled.started] == [(second, 1, 1, 1)]
    assert settled.due == []
    assert await jobs.statuses(head, second, third) == ["done", "running", "blocked"]
    # One transaction wrote both rows.
    assert await jobs.value("SELECT count(DISTINCT xmin::text) FROM outbox.job WHERE id <= %s", second) == 1


async def test_a_chained_successor_carries_what_a_claimed_job_carries(store: Store, jobs: Jobs) -> None:
    await jobs.add("e")
    await jobs.add("e", payload='{"n": 2}', headers='{"x-a": "1"}', max_attempts=3)
    settled = await store.settle([done((await claim(store))[0], chain=True)])
    [job] = settled.started
    assert (job.body, job.headers, job.max_attempts, job.entity_key) == (b'{"n": 2}', {"x-a": "1"}, 3, "e")
    assert (await jobs.row(job.id))["locked_by"] == "first"


async def test_a_lane_chains_through_all_of_its_jobs_in_order(store: Store, jobs: Jobs) -> None:
    ids = await jobs.add_many(10, "e")
    seen, running = [], await claim(store)
    while running:
        seen += [job.id for job in running]
        assert await jobs.count("running") == 1
        running = (await store.settle([done(job, chain=True) for job in running])).started
    assert seen == ids


async def test_without_chaining_a_blocked_successor_becomes_due(store: Store, jobs: Jobs) -> None:
    head, second, third = await jobs.add_many(3, "e")
    settled = await store.settle([done((await claim(store))[0])])
    assert (settled.started, settled.due) == ([], ["a"])
    assert await jobs.statuses(head, second, third) == ["done", "pending", "blocked"]
    assert await claim_ids(store) == [second]


async def test_a_chain_takes_a_pending_successor_too(store: Store, jobs: Jobs) -> None:
    await jobs.add("e")
    [job] = await claim(store)
    second = await jobs.add("e")
    assert [job.id for job in (await store.settle([done(job, chain=True)])).started] == [second]


async def test_a_scheduled_successor_is_not_started_early(store: Store, jobs: Jobs) -> None:
    await jobs.add("e")
    [job] = await claim(store)
    second = await jobs.add("e", run_at=sql.SQL("now() + interval '1 hour'"))
    due_at = (await jobs.row(second))["run_at"]
    settled = await store.settle([done(job, chain=True)])
    assert (settled.started, settled.due) == ([], [])
    row = await jobs.row(second)
    assert (row["status"], row["run_at"]) == ("pending", due_at)


@pytest.mark.parametrize("chain", [True, False])
async def test_a_retried_head_keeps_its_followers_waiting(store: Store, jobs: Jobs, *, chain: bool) -> None:
    head, second = await jobs.add_many(2, "e")
    settled = await store.settle([retry((await claim(store))[0], chain=chain)])
    assert settled.started == []
    assert await jobs.statuses(head, second) == ["pending", "blocked"]
    assert await claim(store) == []


async def test_a_released_head_is_the_next_to_start(store: Store, jobs: Jobs) -> None:
    head, second = await jobs.add_many(2, "e")
    await store.settle([release((await claim(store))[0])])
    assert await jobs.statuses(head, second) == ["pending", "blocked"]
    assert await claim_ids(store) == [head]


@pytest.mark.parametrize("chain", [True, False])
async def test_a_dead_head_holds_its_lane_when_it_blocks(store: Store, jobs: Jobs, *, chain: bool) -> None:
    head, second = await jobs.add_many(2, "e")
    settled = await store.settle([dead((await claim(store))[0], blocks=True, chain=chain)])
    assert settled.started == []
    assert await claim(store) == []
    assert await jobs.statuses(head, second) == ["dead", "blocked"]


async def test_a_dead_head_lets_go_of_its_lane_when_it_skips(store: Store, jobs: Jobs) -> None:
    head, second = await jobs.add_many(2, "e")
    settled = await store.settle([dead((await claim(store))[0], blocks=False, chain=True)])
    assert [job.id for job in settled.started] == [second]
    assert await jobs.statuses(head, second) == ["dead", "running"]


@pytest.mark.parametrize("chain", [True, False])
async def test_the_successor_of_a_paused_destination_becomes_pending(
    open_database: Callable[..., Awaitable[Database]], store: Store, jobs: Jobs, *, chain: bool
) -> None:
    head, second = await jobs.add_many(2, "e")
    [job] = await claim(store)
    await Admin(await open_database()).pause("a", "maintenance")
    assert (await store.settle([done(job, chain=chain)])).started == []
    assert await jobs.statuses(head, second) == ["done", "pending"]


async def test_a_late_result_starts_nothing_beside_the_job_that_runs(store: Store, other: Store, jobs: Jobs) -> None:
    head, second = await jobs.add_many(2, "e")
    [old] = await claim(store)
    await jobs.change(head, "locked_by = 'second', claims = 2")
    settled = await store.settle([done(old, chain=True)])
    assert (settled.ids, settled.started) == (frozenset(), [])
    assert await jobs.statuses(head, second) == ["running", "blocked"]
    assert await claim(other) == []


async def test_the_lanes_of_a_batch_go_on_each_on_its_own(store: Store, jobs: Jobs) -> None:
    for lane in ("chained", "queued", "retried", "standing"):
        await jobs.add_many(2, lane)
    lanes = {job.entity_key: job for job in await claim(store)}
    settled = await store.settle(
        [
            done(lanes["chained"], chain=True),
            done(lanes["queued"]),
            retry(lanes["retried"], chain=True),
            dead(lanes["standing"], blocks=True, chain=True),
        ]
    )
    assert [job.entity_key for job in settled.started] == ["chained"]
    assert settled.due == ["a"]
    assert await jobs.count("blocked") == 2
    assert await jobs.stranded() == []


async def test_a_lane_of_another_destination_is_untouched(store: Store, jobs: Jobs) -> None:
    await jobs.add("e")
    there = await jobs.add_many(2, "e", destination="b")
    await claim(store, "b")
    [job] = await claim(store)
    await store.settle([done(job, chain=True)])
    assert await jobs.statuses(*there) == ["running", "blocked"]
