"""A lane whose head is dead, and what operators do to it: situations 8 to 12."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from relay import rows
from relay.admin import Admin
from relay.bulk import Selection
from relay.database import Database
from relay.dead import Letters
from relay.errors import RelayError
from relay.job import Jobs as Operator
from relay.rules.request import headers
from relay.store import Store
from tests.order.lane import deliver, redrive
from tests.store.gate import Gate
from tests.store.jobs import Jobs, claim, dead, done, webhook

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
    status = await Admin(await open_database()).status()
    assert [(each.dead, each.standing_lanes, each.blocked) for each in status.destinations] == [(1, 1, 2)]
    assert [(lane.holder, lane.why, lane.behind) for lane in status.lanes] == [(ids[0], "dead", 2)]


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


async def test_09_redrive_of_a_dead_head_whose_lane_stood_still(store: Store, jobs: Jobs, open_database: Open) -> None:
    """Fails when a redriven job lets its lane go on without it, loses its key, or is marked as out of order."""
    head, *followers = await lane_with_a_dead_head(store, jobs, blocks=True)
    key = (await jobs.row(head))["idempotency_key"]
    report = await redrive(await open_database(), head)
    assert (report.changed, report.marked) == (1, 0)
    assert await jobs.statuses(head, *followers) == ["pending", "blocked", "blocked"]
    [again] = await claim(store)
    assert (again.id, again.idempotency_key, again.attempts, again.redrive) == (head, key, 1, False)
    [second] = (await store.settle([done(again, chain=True)])).started
    await store.settle([done(second)])
    assert [second.id, *await deliver(store)] == followers


async def test_10_redrive_after_later_jobs_were_delivered(store: Store, jobs: Jobs, open_database: Open) -> None:
    """Fails when a redrive does not ask whether the job still holds its lane, or forgets to mark a forced one."""
    head, *followers = await lane_with_a_dead_head(store, jobs, blocks=False)
    assert await deliver(store) == followers
    refused = await redrive(await open_database(), head)
    assert (refused.changed, refused.refused, refused.overtaken) == (0, 1, 1)
    assert await jobs.statuses(head) == ["dead"]
    forced = await redrive(await open_database(), head, force=True)
    assert (forced.changed, forced.marked) == (1, 1)
    [again] = await claim(store)
    assert (again.id, again.attempts) == (head, 1)
    assert ("Relay-Redrive", "true") in headers(again, webhook(), 0)


async def test_10_redrive_while_the_lane_is_being_let_go(store: Store, jobs: Jobs, open_database: Open) -> None:
    """Fails when the redrive decides on what it read before it had the lock of the lane's holder."""
    head, *followers = await lane_with_a_dead_head(store, jobs, blocks=True)
    async with (await open_database("letting go")).transaction() as transaction:
        await transaction.fetch("start_standing_lanes", {"destinations": ["a"], "limit": 10})
        redriving = asyncio.create_task(redrive(await open_database("redriving"), head))
        await Gate(jobs.connection).waits("redriving")
        lane = rows.lane_parameters({("a", "e"): False})
        await transaction.fetch("settle_lanes", {**lane, "locked_by": "", "lease_s": 0.0})
    assert ((await redriving).changed, (await redriving).left) == (0, 1)
    assert await jobs.statuses(head, *followers) == ["dead", "pending", "blocked"]
    assert await deliver(store) == followers


async def test_11_bulk_redrive(store: Store, jobs: Jobs, open_database: Open) -> None:
    """Fails when jobs that are redriven together run in another order than their ids, or a dry run changes one."""
    standing = [await jobs.add(f"e{n}") for n in range(3)]
    await store.settle([dead(job, blocks=True) for job in await claim(store)])
    overtaken = await jobs.add_many(3, "e")
    while running := await claim(store):
        await store.settle([dead(job, blocks=False) for job in running])
    letters, everything = Letters(await open_database(), actor="ada"), Selection(destination="a")
    dry = await letters.redrive(everything, dry_run=True)
    assert (dry.matched, dry.changed, dry.overtaken) == (6, 3, 3)
    assert await jobs.count("dead") == 6
    assert (await letters.redrive(everything)).changed == 3
    assert await jobs.statuses(*standing, *overtaken) == ["pending"] * 3 + ["dead"] * 3
    assert sorted(await deliver(store)) == standing
    assert (await letters.redrive(everything, force=True)).marked == 3
    assert await deliver(store) == overtaken


async def test_11_bulk_redrive_is_rate_limited(store: Store, jobs: Jobs, open_database: Open) -> None:
    """Fails when a redrive makes more jobs due at once than a tenth of what it may in a second."""
    await jobs.add_many(30)
    await store.settle([dead(job, blocks=False) for job in await claim(store)])
    letters = Letters(await open_database(), actor="ada")
    since_s = time.monotonic()
    report = await letters.redrive(Selection(destination="a"), rate_per_s=100.0)
    # The last ten may not come before the twentieth is due.
    assert time.monotonic() - since_s >= 20 / 100
    assert report.changed == 30
    assert await jobs.value("SELECT max(count) FROM (SELECT count(*) FROM outbox.job GROUP BY run_at) batch") == 10


@pytest.mark.parametrize("state", ["pending", "scheduled", "dead"])
async def test_12_discard_or_cancel_of_a_head(store: Store, jobs: Jobs, open_database: Open, state: str) -> None:
    """Fails when the cancel does not start the lane again, or does so in another transaction."""
    head, *followers = await jobs.add_many(3, "e")
    [running] = await claim(store)
    await store.settle([dead(running, blocks=True)])
    if state != "dead":
        await redrive(await open_database(), head)
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
