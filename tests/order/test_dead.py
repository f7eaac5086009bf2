"""A lane whose head is dead, and what operators do to it: situations 8 to 12."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from relay import rows
from relay.admin import Admin
from relay.database import Database
from relay.errors import RelayError
from relay.job import Jobs as Operator
from relay.rules.request import headers
from relay.store import Store
from tests.chaos.faults import redrive
from tests.order.lane import deliver
from tests.store.gate import Gate
from tests.store.jobs import Jobs, claim, claim_ids, dead, done, webhook

Open = Callable[..., Awaitable[Database]]


async def lane_with_a_dead_head(store: Store, jobs: Jobs, *, blocks: bool, count: int = 3) -> list[int]:
    """Jobs of one entity, the first of which has failed for good; nothing else has happened."""
    ids = await jobs.add_many(count, "e")
    await store.settle([dead((await claim(store))[0], blocks=blocks)])
    return ids


async def test_08_head_becomes_dead_and_the_policy_is_block(store: Store, jobs: Jobs, open_database: Open) -> None:
    """Fails when a settle lets a dead job that holds its lane go."""
    ids = await lane_with_a_dead_head(store, jobs, blocks=True)
    other_lane = await jobs.add("other")
    assert await deliver(store) == [other_lane]
    assert await jobs.statuses(*ids) == ["dead", "blocked", "blocked"]
    [shown] = (await Admin(await open_database()).status()).destinations
    assert (shown.standing_lanes, shown.dead, shown.blocked) == (1, 1, 2)


async def test_08_head_becomes_dead_and_the_policy_is_skip(store: Store, jobs: Jobs) -> None:
    """Fails when a settle does not go on with the lane of a job that has let go of it."""
    head, *followers = await lane_with_a_dead_head(store, jobs, blocks=False)
    assert await jobs.statuses(head, *followers) == ["dead", "pending", "blocked"]
    assert await deliver(store) == followers
    assert await jobs.statuses(head) == ["dead"]


async def test_08_head_is_dead_and_the_policy_changes_to_skip(store: Store, jobs: Jobs) -> None:
    """Fails when the row does not remember that it holds its lane, or when the lane does not go on from there."""
    head, *followers = await lane_with_a_dead_head(store, jobs, blocks=True)
    assert await store.release_standing_lanes(["a"], limit=10) == 1
    assert await deliver(store) == followers
    assert await jobs.statuses(head) == ["dead"]


async def test_09_redrive_of_a_dead_head_whose_lane_stood_still(store: Store, jobs: Jobs, database: str) -> None:
    """Fails when a redriven job goes to the end of its lane, loses its key, or is marked as out of order."""
    head, *followers = await lane_with_a_dead_head(store, jobs, blocks=True)
    key = (await jobs.row(head))["idempotency_key"]
    await redrive(database, [head], force=False)
    assert await jobs.statuses(head, *followers) == ["pending", "blocked", "blocked"]
    [again] = await claim(store)
    assert (again.id, again.idempotency_key, again.attempts, again.redrive) == (head, key, 1, False)
    started = (await store.settle([done(again, chain=True)])).started
    assert [job.id for job in started] == followers[:1]
    await store.settle([done(started[0])])
    assert await deliver(store) == followers[1:]


async def test_10_redrive_after_later_jobs_were_delivered(store: Store, jobs: Jobs, database: str) -> None:
    """Fails when a redrive does not ask whether the job still holds its lane, or forgets to mark a forced one."""
    head, *followers = await lane_with_a_dead_head(store, jobs, blocks=False)
    assert await deliver(store) == followers
    await redrive(database, [head], force=False)
    assert await jobs.statuses(head) == ["dead"]
    await redrive(database, [head], force=True)
    [again] = await claim(store)
    assert (again.id, again.attempts) == (head, 1)
    assert ("Relay-Redrive", "true") in headers(again, webhook(), 0)


async def test_10_redrive_while_the_lane_is_being_let_go(
    store: Store, jobs: Jobs, database: str, open_database: Open
) -> None:
    """Fails when the redrive decides on what it read before it had the lock of the lane's holder."""
    head, *followers = await lane_with_a_dead_head(store, jobs, blocks=True)
    async with (await open_database("letting go")).transaction() as transaction:
        await transaction.fetch("start_standing_lanes", {"destinations": ["a"], "limit": 10})
        redriving = asyncio.create_task(redrive(database, [head], force=False))
        await Gate(jobs.connection).waits("chaos")
        lane = rows.lane_parameters({("a", "e"): False})
        await transaction.fetch("settle_lanes", {**lane, "locked_by": "", "lease_s": 0.0})
    await redriving
    assert await jobs.statuses(head, *followers) == ["dead", "pending", "blocked"]
    assert await deliver(store) == followers


async def test_11_bulk_redrive(store: Store, jobs: Jobs, database: str) -> None:
    """Fails when jobs that were redriven together run in the order they were named."""
    standing = [await jobs.add(f"e{n}") for n in range(3)]
    await store.settle([dead(job, blocks=True) for job in await claim(store)])
    overtaken = await jobs.add_many(3, "e")
    while running := await claim(store):
        await store.settle([dead(job, blocks=False) for job in running])
    unordered = await jobs.add()
    await store.settle([dead((await claim(store))[0], blocks=False)])
    ids = [unordered, *reversed(overtaken), *reversed(standing)]
    await redrive(database, ids, force=False)
    assert await jobs.statuses(*overtaken) == ["dead"] * 3
    await redrive(database, ids, force=True)
    started = await deliver(store)
    assert sorted(started) == sorted(ids)
    assert [id_ for id_ in started if id_ in overtaken] == overtaken


@pytest.mark.parametrize("state", ["pending", "scheduled", "dead"])
async def test_12_discard_or_cancel_of_a_head(
    store: Store, jobs: Jobs, database: str, open_database: Open, state: str
) -> None:
    """Fails when the cancel does not start the lane again, or does so in another transaction."""
    head, *followers = await jobs.add_many(3, "e")
    [running] = await claim(store)
    await store.settle([dead(running, blocks=True)])
    if state != "dead":
        await redrive(database, [head], force=False)
    if state == "scheduled":
        await jobs.change(head, "run_at = now() + interval '1 h'")
    operator = Operator(await open_database("operator"), actor="ada")
    assert (await operator.cancel(head, "withdrawn")).was == ("dead" if state == "dead" else "pending")
    assert await jobs.statuses(head, *followers) == ["discarded", "pending", "blocked"]
    both = "SELECT count(DISTINCT xmin::text) FROM outbox.job WHERE id <= %s"
    assert await jobs.value(both, followers[0]) == 1
    assert await deliver(store) == followers


async def test_12_cancel_of_a_running_head_is_refused_and_its_result_counts(
    store: Store, jobs: Jobs, open_database: Open
) -> None:
    """Fails when a running job may be discarded: its request is on its way."""
    head, second = await jobs.add_many(2, "e")
    [running] = await claim(store)
    with pytest.raises(RelayError, match=f"job {head} is running"):
        await Operator(await open_database("operator"), actor="ada").cancel(head, None)
    assert [job.id for job in (await store.settle([done(running, chain=True)])).started] == [second]
