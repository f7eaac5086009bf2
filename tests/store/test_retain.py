"""What retention deletes, what it never touches, and whom it never holds up."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial

import psycopg
import pytest

from relay.bulk import Selection
from relay.database import CONFLICTS, SQL, Database
from relay.dead import Letters
from relay.store import Store
from tests.store.jobs import LEASE_S, TRACE, Jobs, claim, claim_ids, dead, done, retry

HOUR_S = 3600.0


async def finished(jobs: Jobs, status: str, age_s: float, count: int = 1, entity_key: str | None = None) -> list[int]:
    """Finished jobs of that age, by direct writing."""
    ids = await jobs.add_many(count, entity_key)
    for id_ in ids:
        await jobs.change(id_, f"status = '{status}', holds_lane = false, finished_at = now() - interval '{age_s} s'")
    return ids


async def buried(jobs: Jobs, age_s: float, entity_key: str) -> int:
    """A dead job of that age behind which its lane stands still."""
    [id_] = await finished(jobs, "dead", age_s, entity_key=entity_key)
    await jobs.change(id_, "holds_lane = true")
    return id_


async def test_finished_jobs_past_their_age_are_deleted_and_younger_ones_kept(store: Store, jobs: Jobs) -> None:
    for status in ("done", "discarded"):
        await finished(jobs, status, HOUR_S + 60)
        await finished(jobs, status, HOUR_S - 60)
    assert (await store.retain_jobs(HOUR_S, limit=10)).rows == 2
    assert await jobs.statuses() == ["done", "discarded"]


async def test_dead_jobs_are_kept_for_ever_where_they_have_no_age(store: Store, jobs: Jobs) -> None:
    await finished(jobs, "dead", 1_000_000)
    assert (await store.retain_jobs(HOUR_S, limit=10)).rows == 0
    assert await jobs.statuses() == ["dead"]


async def test_unfinished_jobs_are_kept_however_old(store: Store, jobs: Jobs) -> None:
    head, second = await jobs.add_many(2, "e")
    await claim(store)
    pending, unrouted = await jobs.add(), await jobs.add(destination=None, topic="nobody")
    for id_ in (head, second, pending, unrouted):
        await jobs.change(id_, "created_at = '2000-01-01', run_at = '2000-01-01'")
    assert (await store.retain_jobs(HOUR_S, limit=10)).rows == 0
    assert not await store.retain_dead(HOUR_S, limit=10)
    assert await jobs.statuses() == ["running", "blocked", "pending", "unrouted"]


async def test_retention_deletes_a_bounded_batch_of_the_oldest_first_and_says_how_far_it_came(
    store: Store, jobs: Jobs
) -> None:
    young = await finished(jobs, "done", HOUR_S + 60, 2)
    await finished(jobs, "done", HOUR_S + 120, 3)
    first = await store.retain_jobs(HOUR_S, limit=3)
    assert first.rows == 3
    assert await jobs.value("SELECT array_agg(id ORDER BY id) FROM outbox.job") == young
    assert await jobs.value("SELECT min(finished_at) > %s FROM outbox.job", first.up_to)
    assert (await store.retain_jobs(HOUR_S, limit=3, after=first.up_to)).rows == 2
    assert await store.retain_jobs(HOUR_S, limit=3, after=first.up_to) == (0, None)


async def test_a_batch_does_not_look_at_what_earlier_ones_deleted_while_vacuum_is_held_back(
    store: Store, jobs: Jobs, database: str
) -> None:
    """5,000 rows are deleted in the sight of an older transaction; the next batch reads a few pages, not those."""
    await finished(jobs, "done", HOUR_S + 60)
    await jobs.connection.execute(
        "INSERT INTO outbox.job (destination, topic, payload, status, holds_lane, finished_at)"
        " SELECT 'a', 't', '{}', 'done', false, now() - n * interval '1 s' - interval '3 h'"
        " FROM generate_series(1, 5000) n"
    )
    explain = b"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + SQL["retain_jobs"]

    async def pages(after: object) -> int:
        async with jobs.connection.transaction(force_rollback=True):
            parameters = {"age_s": HOUR_S, "limit": 100, "after": after}
            [[[plan]]] = await (await jobs.connection.execute(explain, parameters)).fetchall()
        return int(plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"])

    async with await psycopg.AsyncConnection.connect(database) as looking:
        await looking.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        await looking.execute("SELECT FROM outbox.job")
        deleted = await store.retain_jobs(2 * HOUR_S, limit=10_000)
        assert deleted.rows == 5_000
        assert await pages(deleted.up_to) < 50
        assert await pages(None) > 200


async def test_old_attempts_are_deleted_in_bounded_batches_and_younger_ones_kept(store: Store, jobs: Jobs) -> None:
    await jobs.add_many(6)
    await store.settle([retry(job) for job in await claim(store)])
    await jobs.connection.execute("UPDATE outbox.attempt SET failed_at = now() - interval '2 h' WHERE job_id > 1")
    counts = [(await store.retain_attempts(HOUR_S, limit=3)).rows for _ in range(3)]
    assert counts == [3, 2, 0]
    assert await jobs.value("SELECT array_agg(job_id) FROM outbox.attempt") == [1]


async def test_retention_skips_what_another_replica_is_deleting(store: Store, jobs: Jobs, database: str) -> None:
    held, _ = await finished(jobs, "done", HOUR_S + 60, 2)
    async with await psycopg.AsyncConnection.connect(database) as somebody:
        await somebody.execute("SELECT FROM outbox.job WHERE id = %s FOR UPDATE", [held])
        assert (await store.retain_jobs(HOUR_S, limit=10)).rows == 1


async def test_dead_jobs_past_their_age_are_deleted_and_counted_and_younger_ones_kept(store: Store, jobs: Jobs) -> None:
    await finished(jobs, "dead", HOUR_S + 60, 2)
    [young] = await finished(jobs, "dead", HOUR_S - 60)
    assert await store.retain_dead(HOUR_S, limit=10) == {"a": 2}
    assert await jobs.value("SELECT array_agg(id) FROM outbox.job") == [young]


async def test_a_lane_that_stood_still_goes_on_when_its_dead_job_is_deleted(store: Store, jobs: Jobs) -> None:
    await buried(jobs, HOUR_S + 60, "e")
    following = await jobs.add_many(2, "e")
    assert await claim_ids(store) == []
    assert await store.retain_dead(HOUR_S, limit=10) == {"a": 1}
    assert await claim_ids(store) == following[:1]
    assert await jobs.stranded() == []


async def test_a_dead_job_that_somebody_holds_is_left_and_the_others_are_deleted(
    store: Store, jobs: Jobs, database: str
) -> None:
    held, *_ = [await buried(jobs, HOUR_S + 60, f"e{n}") for n in range(3)]
    async with await psycopg.AsyncConnection.connect(database) as somebody:
        await somebody.execute("SELECT FROM outbox.job WHERE id = %s FOR UPDATE", [held])
        assert await store.retain_dead(HOUR_S, limit=10) == {"a": 2}
    assert await store.retain_dead(HOUR_S, limit=10) == {"a": 1}


@pytest.fixture
async def careless(open_database: Callable[..., Awaitable[Database]]) -> Store:
    """A replica that keeps nothing of what it delivered."""
    return Store(await open_database("careless"), locked_by="careless", lease_s=LEASE_S, keep_done=False)


async def test_a_settle_that_keeps_nothing_deletes_delivered_jobs_and_only_those(careless: Store, jobs: Jobs) -> None:
    delivered, failed, given_up = await jobs.add_many(3)
    by_id = {job.id: job for job in await claim(careless)}
    batch = [done(by_id[delivered]), retry(by_id[failed]), dead(by_id[given_up], blocks=False)]
    assert (await careless.settle(batch)).ids == {delivered, failed, given_up}
    assert await jobs.value("SELECT array_agg(id ORDER BY id) FROM outbox.job") == [failed, given_up]
    assert await jobs.value("SELECT array_agg(trace_id) FROM outbox.attempt") == [TRACE, TRACE]


async def test_a_settle_that_keeps_nothing_starts_the_next_job_of_the_lane(careless: Store, jobs: Jobs) -> None:
    _, second, third = await jobs.add_many(3, "e")
    [job] = await claim(careless)
    [started] = (await careless.settle([done(job, chain=True)])).started
    assert started.id == second
    await careless.settle([done(started)])
    assert await claim_ids(careless) == [third]
    assert await jobs.stranded() == []


async def test_a_late_settle_that_keeps_nothing_deletes_nothing(careless: Store, jobs: Jobs) -> None:
    id_ = await jobs.add()
    [late] = await claim(careless)
    await jobs.change(id_, "claims = claims + 1")
    assert (await careless.settle([done(late)])).ids == frozenset()
    await jobs.change(id_, "claims = claims - 1, locked_by = 'other'")
    assert (await careless.settle([done(late)])).ids == frozenset()
    assert await jobs.statuses(id_) == ["running"]


@pytest.mark.parametrize("locked", ["is skipped", "is waited for"])
async def test_retention_and_somebody_who_locks_finished_jobs_in_another_order_do_not_deadlock(
    store: Store, jobs: Jobs, database: str, monkeypatch: pytest.MonkeyPatch, locked: str
) -> None:
    """A redrive has the younger job and then wants the older one, as ids go. To wait for what is locked must fail."""
    if locked == "is waited for":
        monkeypatch.setitem(SQL, "retain_jobs", SQL["retain_jobs"].replace(b"FOR UPDATE SKIP LOCKED", b"FOR UPDATE"))
    [younger] = await finished(jobs, "done", HOUR_S + 60)
    [older] = await finished(jobs, "done", HOUR_S + 120)
    lock = b"SELECT FROM outbox.job WHERE id = %s FOR UPDATE"
    async with await psycopg.AsyncConnection.connect(database) as redriving:
        await redriving.execute(lock, [younger])
        retaining = asyncio.create_task(store.retain_jobs(HOUR_S, limit=10))
        pid = redriving.info.backend_pid
        waits = "SELECT count(*) FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"
        while not retaining.done() and not await jobs.value(waits, pid):
            await asyncio.sleep(0)
        outcome = (await asyncio.gather(redriving.execute(lock, [older]), retaining, return_exceptions=True))[0:2]
    deadlocked = [each for each in outcome if isinstance(each, CONFLICTS)]
    if locked == "is waited for":
        assert deadlocked
    else:
        assert not deadlocked
        assert outcome[1].rows == 1  # type: ignore[union-attr]


async def test_deliveries_redrives_and_retention_of_the_same_lanes_go_on_beside_each_other(
    store: Store, other: Store, jobs: Jobs, open_database: Callable[..., Awaitable[Database]]
) -> None:
    """Everything that is delivered or dead is at once redriven by one and deleted by another."""
    letters = Letters(await open_database("operator"), actor="test")
    deleted: Counter[str] = Counter()
    deadlocks: list[Exception] = []
    over = asyncio.Event()

    async def again(step: Callable[[], Awaitable[object]]) -> None:
        while not over.is_set():
            try:
                await step()
            except CONFLICTS as conflict:
                deadlocks.extend([conflict] if isinstance(conflict, psycopg.errors.DeadlockDetected) else [])

    async def deliver(replica: Store) -> None:
        await jobs.add_many(10, "e")
        await jobs.add_many(10)
        claimed = await claim(replica)
        while claimed:
            batch = [dead(job, blocks=job.entity_key is not None) if job.id % 4 == 0 else done(job, chain=True)
                     for job in claimed]  # fmt: skip
            claimed = (await replica.settle(batch)).started

    async def clean() -> None:
        deleted["finished"] += (await store.retain_jobs(0.0, limit=7)).rows
        deleted["dead"] += (await store.retain_dead(0.0, limit=5)).total()
        if deleted["finished"] > 500 and deleted["dead"] > 50:
            over.set()

    async def redrive() -> None:
        found = await jobs.value("SELECT array_agg(id) FROM outbox.job WHERE status IN ('done', 'dead')")
        await letters.redrive(Selection(ids=tuple(found or [1])), force=True)

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for step in (partial(deliver, store), partial(deliver, other), clean, redrive):
            group.create_task(again(step))
    assert deadlocks == []
    assert await jobs.stranded() == []
    assert await jobs.value("SELECT count(*) > 20 FROM outbox.operation WHERE verb = 'redrive'")
