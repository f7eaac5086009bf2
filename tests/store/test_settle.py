"""Writing outcomes: fenced, with failures kept, and all or nothing."""

from collections.abc import Callable
from dataclasses import replace

import psycopg
import pytest

from relay.database import CONFLICTS
from relay.model import ErrorClass, Failure, Job, Settlement
from relay.store import Store
from tests.conftest import Connection
from tests.store.jobs import FAILURE, TRACE, Jobs, claim, claim_ids, dead, done, ranges, release, retry, webhook


async def test_a_delivered_job_is_done_and_its_lease_is_gone(store: Store, jobs: Jobs) -> None:
    id_ = await jobs.add()
    [job] = await claim(store)
    assert (await store.settle([done(job)])).ids == {id_}
    row = await jobs.row(id_)
    assert (row["status"], row["locked_by"], row["locked_until"], row["holds_lane"]) == ("done", None, None, False)
    assert row["finished_at"] is not None


async def test_a_retry_is_due_after_its_delay_by_the_database_clock(store: Store, jobs: Jobs) -> None:
    id_ = await jobs.add()
    [job] = await claim(store)
    before = await jobs.value("SELECT now()")
    await store.settle([retry(job, 90.0)])
    after = await jobs.value("SELECT now()")
    row = await jobs.row(id_)
    assert row["status"] == "pending"
    assert before <= row["run_at"] - (await jobs.value("SELECT interval '90 s'")) <= after


async def test_a_retry_keeps_its_charged_attempt(store: Store, jobs: Jobs) -> None:
    id_ = await jobs.add()
    await store.settle([retry((await claim(store))[0])])
    row = await jobs.row(id_)
    assert (row["attempts"], row["claims"]) == (1, 1)


async def test_a_release_gives_the_attempt_back_but_never_the_claim(store: Store, jobs: Jobs) -> None:
    id_ = await jobs.add()
    for claims in (1, 2, 3):
        [job] = await claim(store)
        assert (job.attempts, job.claims) == (1, claims)
        await store.settle([release(job)])
        row = await jobs.row(id_)
        assert (row["status"], row["attempts"], row["claims"]) == ("pending", 0, claims)


async def test_a_release_keeps_no_failure(store: Store, jobs: Jobs) -> None:
    await jobs.add()
    await store.settle([release((await claim(store))[0])])
    assert await jobs.value("SELECT count(*) FROM outbox.attempt") == 0


async def test_a_dead_job_has_a_finish_time_and_stays(store: Store, jobs: Jobs) -> None:
    id_ = await jobs.add()
    await store.settle([dead((await claim(store))[0], blocks=False)])
    row = await jobs.row(id_)
    assert (row["status"], row["holds_lane"], row["finished_at"] is not None) == ("dead", False, True)


async def test_a_failure_is_kept_with_all_that_is_known_of_it(store: Store, jobs: Jobs) -> None:
    id_ = await jobs.add()
    await store.settle([retry((await claim(store))[0])])
    kept = await jobs.connection.execute(
        "SELECT job_id, claim, attempt, replica, error_class, detail, status, duration_s, response, trace_id"
        "  FROM outbox.attempt"
    )
    assert await kept.fetchall() == [(id_, 1, 1, "first", "status", "answered 503", 503, 0.25, b"\x00busy", TRACE)]


async def test_of_each_job_the_newest_50_failures_are_kept_however_often_it_is_claimed(
    store: Store, jobs: Jobs
) -> None:
    id_, other = await jobs.add_many(2)
    for _ in range(2):
        await store.settle([retry(job, 0.0) for job in await claim(store)])
    # Claims without a failure, as releases are, push none out.
    await jobs.change(id_, "claims = 100")
    for _ in range(49):
        await store.settle([retry(job, 0.0) for job in await claim(store)])
    kept = "SELECT array_agg(claim ORDER BY claim) FROM outbox.attempt WHERE job_id = %s"
    assert await jobs.value(kept, id_) == [2, *range(101, 150)]
    assert await jobs.value(kept, other) == list(range(2, 52))


async def test_a_detail_with_a_nul_is_kept(store: Store, jobs: Jobs) -> None:
    await jobs.add()
    [job] = await claim(store)
    failure = Failure(ErrorClass.READ, "got \0 there", 0.0)
    assert (await store.settle([Settlement(job, "pending", failure=failure)])).ids == {job.id}
    assert await jobs.value("SELECT detail FROM outbox.attempt") == "got \ufffd there"


async def test_each_failed_claim_of_a_job_is_kept_on_its_own(store: Store, jobs: Jobs) -> None:
    await jobs.add()
    for _ in range(3):
        await store.settle([retry((await claim(store))[0], 0.0)])
    assert await jobs.value("SELECT array_agg(claim ORDER BY claim) FROM outbox.attempt") == [1, 2, 3]


async def test_a_late_result_of_an_older_claim_changes_nothing_and_is_missing(
    store: Store, other: Store, jobs: Jobs
) -> None:
    id_ = await jobs.add()
    [old] = await claim(store)
    await jobs.change(id_, "locked_until = now() - interval '1 s'")
    await other.reclaim([webhook()], limit=10)
    [new] = await claim(other)
    before = await jobs.row(id_)
    assert (await store.settle([dead(old, blocks=False)])).ids == frozenset()
    assert await jobs.row(id_) == before
    assert await jobs.value("SELECT count(*) FROM outbox.attempt WHERE error_class = 'status'") == 0
    assert (await other.settle([done(new)])).ids == {id_}


async def test_a_late_result_does_not_match_a_newer_claim_of_the_same_replica(store: Store, jobs: Jobs) -> None:
    await jobs.add()
    [old] = await claim(store)
    await store.settle([release(old)])
    [new] = await claim(store)
    # The attempt was given back, so it is the claims alone that tell the two apart.
    assert (old.attempts, old.claims) == (1, 1)
    assert (new.attempts, new.claims) == (1, 2)
    assert (await store.settle([dead(old, blocks=False)])).ids == frozenset()
    assert await jobs.count("running") == 1


async def test_a_result_does_not_match_another_replica_of_equal_claims(store: Store, other: Store, jobs: Jobs) -> None:
    await jobs.add()
    [job] = await claim(store)
    assert (await other.settle([done(job)])).ids == frozenset()
    assert await jobs.count("running") == 1


async def test_a_result_written_twice_counts_once(store: Store, jobs: Jobs) -> None:
    id_ = await jobs.add()
    [job] = await claim(store)
    assert (await store.settle([retry(job)])).ids == {id_}
    assert (await store.settle([retry(job)])).ids == frozenset()
    assert await jobs.value("SELECT count(*) FROM outbox.attempt") == 1


async def test_a_late_result_spoils_none_of_its_batch(store: Store, jobs: Jobs) -> None:
    ids = await jobs.add_many(3)
    first, second, third = await claim(store)
    settled = await store.settle([done(third), done(replace(second, claims=9)), done(first)])
    assert settled.ids == {ids[0], ids[2]}
    assert await jobs.statuses(*ids) == ["done", "running", "done"]


async def test_a_job_that_was_deleted_is_missing(store: Store, jobs: Jobs) -> None:
    await jobs.add()
    [job] = await claim(store)
    await jobs.connection.execute("DELETE FROM outbox.job")
    assert (await store.settle([retry(job)])).ids == frozenset()


async def test_a_batch_of_500_mixed_outcomes_is_written_at_once(store: Store, jobs: Jobs) -> None:
    await jobs.add_many(300)
    for lane in range(200):
        await jobs.add_many(2, f"e{lane}")
    batch = await claim(store, free=500, width=700)
    assert len(batch) == 500
    kinds: list[Callable[[Job], Settlement]] = [
        done,
        retry,
        release,
        lambda job: dead(job, blocks=job.entity_key is not None),
        lambda job: done(job, chain=True),
    ]
    settled = await store.settle([kinds[job.id % 5](job) for job in batch])
    assert settled.ids == {job.id for job in batch}
    expected = {"done": 0, "pending": 0, "dead": 0}
    for job in batch:
        expected[("done", "pending", "pending", "dead", "done")[job.id % 5]] += 1
    found = await jobs.connection.execute(
        "SELECT status, count(*) FROM outbox.job WHERE id = ANY (%s) GROUP BY 1", [list(settled.ids)]
    )
    assert dict(await found.fetchall()) == expected
    assert len(settled.started) == sum(job.id % 5 == 4 and job.entity_key is not None for job in batch)
    assert await jobs.stranded() == []


async def test_an_empty_batch_is_no_error(store: Store) -> None:
    assert (await store.settle([])).ids == frozenset()


async def test_a_settlement_that_pauses_keeps_every_replica_from_the_destination(
    store: Store, other: Store, jobs: Jobs
) -> None:
    await jobs.add_many(2)
    job = (await claim(store, free=1))[0]
    gone = Settlement(job, "pending", charged=False, pauses=True, failure=replace(FAILURE, detail="answered 410"))
    await store.settle([gone])
    assert await claim(other) == []
    assert await jobs.value("SELECT paused_why FROM outbox.destination WHERE name = 'a'") == "answered 410"


async def test_a_pause_is_kept_once_with_the_replica_however_many_jobs_were_answered_so(
    store: Store, jobs: Jobs
) -> None:
    await jobs.add_many(3)
    first, second, third = await claim(store)
    gone = replace(FAILURE, detail="answered 410")
    for batch in ([first, second], [third]):
        await store.settle([Settlement(job, "pending", charged=False, pauses=True, failure=gone) for job in batch])
    kept = await jobs.connection.execute("SELECT actor, verb, destination, job_id, detail FROM outbox.operation")
    assert await kept.fetchall() == [("first", "pause", "a", None, {"why": "answered 410"})]


async def test_a_batch_with_a_row_that_somebody_holds_raises_and_writes_nothing(
    store: Store, jobs: Jobs, database: str
) -> None:
    first, second = await jobs.add_many(2)
    batch = await claim(store)
    async with await psycopg.AsyncConnection.connect(database) as somebody:
        await somebody.execute("SELECT FROM outbox.job WHERE id = %s FOR UPDATE", [second])
        with pytest.raises(CONFLICTS):
            await store.settle([done(job) for job in batch])
    assert await jobs.statuses(first, second) == ["running", "running"]
    assert len((await store.settle([done(job) for job in batch])).ids) == 2


async def test_settled_jobs_are_claimed_again_only_when_they_are_pending(store: Store, jobs: Jobs) -> None:
    ids = await jobs.add_many(3)
    first, second, third = await claim(store)
    await store.settle([done(first), retry(second, 0.0), dead(third, blocks=False)])
    assert await claim_ids(store) == [ids[1]]
    assert (await store.claim(ranges(), payload_bytes=1)).jobs == []


async def test_a_record_that_a_restore_left_behind_keeps_no_outcome_from_being_written(
    store: Store, jobs: Jobs, connection: Connection
) -> None:
    id_ = await jobs.add()
    [job] = await claim(store)
    await connection.execute(
        "INSERT INTO outbox.attempt (job_id, claim, attempt, replica, error_class, detail, duration_s)"
        " VALUES (%s, %s, 1, 'r', 'dns', 'old', 1)",
        (id_, job.claims),
    )
    settled = await store.settle([replace(retry(job), failure=FAILURE)])
    assert settled.ids == {id_}
    assert await jobs.statuses(id_) == ["pending"]


async def test_trace_context_beyond_any_legal_length_stays_in_the_table(store: Store, jobs: Jobs) -> None:
    await jobs.add(traceparent="a" * 513, tracestate="b" * 8193)
    await jobs.add("e", tracestate="k=" + "v" * 8190)
    await jobs.add("e", traceparent="a" * 513)
    huge, head = await claim(store)
    # Empty, so that it is counted as malformed.
    assert (huge.traceparent, huge.tracestate) == ("", None)
    assert head.tracestate == "k=" + "v" * 8190
    [chained] = (await store.settle([done(head, chain=True)])).started
    assert chained.traceparent == ""
