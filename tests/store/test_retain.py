"""What retention deletes, and what it never touches."""

import psycopg

from relay.store import Store
from tests.store.jobs import Jobs, claim, retry

HOUR_S = 3600.0


async def finished(jobs: Jobs, status: str, age_s: float, count: int = 1) -> list[int]:
    """Finished jobs of that age, by direct writing."""
    ids = await jobs.add_many(count)
    for id_ in ids:
        await jobs.change(id_, f"status = '{status}', holds_lane = false, finished_at = now() - interval '{age_s} s'")
    return ids


async def test_finished_jobs_past_their_age_are_deleted_and_younger_ones_kept(store: Store, jobs: Jobs) -> None:
    for status in ("done", "discarded"):
        await finished(jobs, status, HOUR_S + 60)
        await finished(jobs, status, HOUR_S - 60)
    assert await store.retain(done_s=HOUR_S, attempt_s=HOUR_S, limit=10) == (2, 0)
    assert await jobs.statuses() == ["done", "discarded"]


async def test_dead_jobs_are_kept_for_ever(store: Store, jobs: Jobs) -> None:
    await finished(jobs, "dead", 1_000_000)
    assert await store.retain(done_s=HOUR_S, attempt_s=HOUR_S, limit=10) == (0, 0)


async def test_unfinished_jobs_are_kept_however_old(store: Store, jobs: Jobs) -> None:
    head, second = await jobs.add_many(2, "e")
    await claim(store)
    pending, unrouted = await jobs.add(), await jobs.add(destination=None, topic="nobody")
    for id_ in (head, second, pending, unrouted):
        await jobs.change(id_, "created_at = '2000-01-01', run_at = '2000-01-01'")
    assert await store.retain(done_s=HOUR_S, attempt_s=HOUR_S, limit=10) == (0, 0)
    assert await jobs.statuses() == ["running", "blocked", "pending", "unrouted"]


async def test_retention_deletes_a_bounded_batch_of_the_oldest_first(store: Store, jobs: Jobs) -> None:
    young = await finished(jobs, "done", HOUR_S + 60, 2)
    await finished(jobs, "done", HOUR_S + 120, 3)
    assert await store.retain(done_s=HOUR_S, attempt_s=HOUR_S, limit=3) == (3, 0)
    assert await jobs.value("SELECT array_agg(id ORDER BY id) FROM outbox.job") == young
    assert await store.retain(done_s=HOUR_S, attempt_s=HOUR_S, limit=3) == (2, 0)


async def test_old_attempts_are_deleted_in_bounded_batches_and_younger_ones_kept(store: Store, jobs: Jobs) -> None:
    await jobs.add_many(6)
    await store.settle([retry(job) for job in await claim(store)])
    await jobs.connection.execute("UPDATE outbox.attempt SET failed_at = now() - interval '2 h' WHERE job_id > 1")
    counts = [await store.retain(done_s=HOUR_S, attempt_s=HOUR_S, limit=3) for _ in range(3)]
    assert counts == [(0, 3), (0, 2), (0, 0)]
    assert await jobs.value("SELECT array_agg(job_id) FROM outbox.attempt") == [1]


async def test_retention_skips_what_another_replica_is_deleting(store: Store, jobs: Jobs, database: str) -> None:
    held, _ = await finished(jobs, "done", HOUR_S + 60, 2)
    async with await psycopg.AsyncConnection.connect(database) as somebody:
        await somebody.execute("SELECT FROM outbox.job WHERE id = %s FOR UPDATE", [held])
        assert await store.retain(done_s=HOUR_S, attempt_s=HOUR_S, limit=10) == (1, 0)
