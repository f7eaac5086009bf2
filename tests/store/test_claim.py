"""Which jobs a claim starts, and what it leaves alone."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import psycopg
from psycopg import sql

from relay.admin import Admin
from relay.database import Database
from relay.rows import START, Range
from relay.store import Store
from tests.store.jobs import BUDGET, LEASE_S, Jobs, claim, claim_ids, ranges

ROW_LOCK = b"SELECT FROM outbox.job WHERE id = %s FOR UPDATE"


async def test_jobs_without_an_entity_start_all_at_once(store: Store, jobs: Jobs) -> None:
    ids = await jobs.add_many(20)
    assert await claim_ids(store) == ids


async def test_a_claimed_job_runs_under_a_lease_that_the_database_clock_ends(store: Store, jobs: Jobs) -> None:
    id_ = await jobs.add()
    await claim(store)
    row = await jobs.row(id_)
    assert (row["status"], row["locked_by"]) == ("running", "first")
    left_s = await jobs.value("SELECT extract(epoch FROM locked_until - now())::float8 FROM outbox.job")
    assert LEASE_S / 2 < left_s <= LEASE_S


async def test_a_claim_counts_one_attempt_and_one_claim(store: Store, jobs: Jobs) -> None:
    await jobs.add()
    [job] = await claim(store)
    assert (job.attempts, job.claims) == (1, 1)


async def test_a_claimed_job_carries_what_the_producer_wrote(store: Store, jobs: Jobs) -> None:
    key, text = "ключ", '{"b": 1,  "a": "\\u0000 ü"}'
    id_ = await jobs.add(
        key, topic="order.paid", idempotency_key="k1", payload=text, max_attempts=7, headers='{"x-a": "1"}',
        traceparent="tp", tracestate="ts",
    )  # fmt: skip
    [job] = await claim(store)
    assert (job.id, job.destination, job.topic, job.entity_key, job.idempotency_key) == (
        id_,
        "a",
        "order.paid",
        key,
        "k1",
    )
    assert (job.body, job.content_type) == (text.encode(), "application/json")
    assert (dict(job.headers), job.max_attempts) == ({"x-a": "1"}, 7)
    assert (job.traceparent, job.tracestate, job.redrive) == ("tp", "ts", False)


async def test_a_body_is_claimed_byte_for_byte(store: Store, jobs: Jobs) -> None:
    body = bytes(range(256)) * 40
    await jobs.add(body=body, content_type="application/octet-stream")
    [job] = await claim(store)
    assert (job.body, job.content_type) == (body, "application/octet-stream")


async def test_a_scheduled_job_without_an_entity_is_left_until_it_is_due(store: Store, jobs: Jobs) -> None:
    id_ = await jobs.add(run_at=sql.SQL("now() + interval '1 hour'"))
    assert await claim(store) == []
    await jobs.change(id_, "run_at = now()")
    assert await claim_ids(store) == [id_]


async def test_jobs_that_are_due_longest_start_first(store: Store, jobs: Jobs) -> None:
    ids = [await jobs.add() for _ in range(4)]
    await jobs.change(ids[2], "run_at = now() - interval '1 hour'")
    assert await claim_ids(store, free=1) == [ids[2]]


async def test_a_better_priority_starts_first(store: Store, jobs: Jobs) -> None:
    ids = [await jobs.add(priority=priority) for priority in (3, 1, 0, 2)]
    assert [await claim_ids(store, free=1) for _ in ids] == [[ids[2]], [ids[1]], [ids[3]], [ids[0]]]


async def test_a_claim_that_asks_in_reverse_starts_the_least_urgent_first(store: Store, jobs: Jobs) -> None:
    ids = [await jobs.add(priority=priority) for priority in (0, 3)]
    assert await claim_ids(store, free=1, priorities=(3, 2, 1, 0)) == [ids[1]]


async def test_no_more_jobs_of_a_destination_start_than_it_has_free(store: Store, jobs: Jobs) -> None:
    for priority in range(4):
        await jobs.add_many(5, priority=priority)
        await jobs.add(f"e{priority}", priority=priority)
    assert len(await claim(store, free=7)) == 7
    assert await jobs.count("pending") == 17


async def test_a_full_destination_takes_nothing_from_another(store: Store, jobs: Jobs) -> None:
    await jobs.add_many(50)
    ids = await jobs.add_many(5, destination="b")
    claimed = await store.claim([*ranges("a", free=1), *ranges("b", free=5)], payload_bytes=BUDGET)
    assert sorted(job.id for job in claimed.jobs if job.destination == "b") == ids
    assert len(claimed.jobs) == 6


async def test_a_paused_destination_gives_nothing(
    open_database: Callable[..., Awaitable[Database]], store: Store, jobs: Jobs
) -> None:
    ids = await jobs.add_many(3)
    admin = Admin(await open_database())
    await admin.pause("a", "maintenance")
    claimed = await store.claim(ranges(), payload_bytes=BUDGET)
    assert (claimed.jobs, claimed.looked) == ([], [])
    assert await jobs.statuses(*ids) == ["pending"] * 3
    await admin.resume("a")
    assert await claim_ids(store) == ids


async def test_a_destination_that_was_not_asked_for_is_untouched(store: Store, jobs: Jobs) -> None:
    await jobs.add_many(2, "e", destination="unknown")
    before = await jobs.value("SELECT array_agg(xmin::text || xmax::text) FROM outbox.job")
    await jobs.add()
    await claim(store)
    after = await jobs.value("SELECT array_agg(xmin::text || xmax::text) FROM outbox.job WHERE destination = 'unknown'")
    assert after == before


async def test_a_row_that_somebody_holds_is_skipped_at_once(store: Store, jobs: Jobs, database: str) -> None:
    held, free = await jobs.add_many(2)
    async with await psycopg.AsyncConnection.connect(database) as somebody:
        await somebody.execute(ROW_LOCK, [held])
        # A claim that waits ends by its lock timeout, with an error.
        assert await claim_ids(store) == [free]


async def test_two_claims_at_once_share_no_job(replica: Callable[..., Awaitable[Store]], jobs: Jobs) -> None:
    await jobs.add_many(300)
    for lane in range(40):
        await jobs.add_many(5, f"e{lane}")
    stores = [await replica(f"r{number}") for number in range(8)]
    seen: Counter[int] = Counter()

    async def drain(store: Store) -> None:
        empty = 0
        while empty < 3:
            claimed = await claim_ids(store, free=9, width=20)
            seen.update(claimed)
            empty = 0 if claimed else empty + 1

    await asyncio.gather(*map(drain, stores))
    assert set(seen.values()) == {1}
    # Nothing was settled: of each lane only the first could start.
    assert len(seen) >= 300
    assert await jobs.count("running") == len(seen) <= 340


async def test_a_claim_says_how_many_due_rows_it_looked_at_and_the_last_of_them(store: Store, jobs: Jobs) -> None:
    ids = await jobs.add_many(5, priority=2)
    claimed = await store.claim(ranges(width=3), payload_bytes=BUDGET)
    [looked] = claimed.looked
    assert (looked.destination, looked.priority, looked.rows, looked.last.id) == ("a", 2, 3, ids[2])
    assert looked.last.run_at == (await jobs.row(ids[2]))["run_at"]


async def test_a_range_without_due_rows_is_not_reported(store: Store) -> None:
    assert (await store.claim(ranges(), payload_bytes=BUDGET)).looked == []


async def test_a_claim_goes_on_after_the_last_row_looked_at(store: Store, jobs: Jobs) -> None:
    await jobs.add_many(6, "hot")
    quiet = await jobs.add("quiet")
    seen: list[int] = []
    after = START
    for _ in range(4):
        claimed = await store.claim([Range("a", 1, 10, 2, after)], payload_bytes=BUDGET)
        seen += [job.id for job in claimed.jobs]
        after = claimed.looked[0].last
    assert seen == [1, quiet]


async def test_a_window_of_a_lane_that_somebody_holds_says_where_to_go_on(
    store: Store, jobs: Jobs, database: str
) -> None:
    lane = await jobs.add_many(5, "held")
    quiet = await jobs.add("quiet")
    async with await psycopg.AsyncConnection.connect(database) as somebody:
        await somebody.execute(ROW_LOCK, [lane[0]])
        claimed = await store.claim([Range("a", 1, 10, 4, START)], payload_bytes=BUDGET)
        assert (claimed.jobs, claimed.looked[0].rows) == ([], 4)
        assert await jobs.statuses(*lane) == ["pending"] * 5
        claimed = await store.claim([Range("a", 1, 10, 8, claimed.looked[0].last)], payload_bytes=BUDGET)
        assert [job.id for job in claimed.jobs] == [quiet]


async def test_a_mark_finds_rows_of_equal_due_time_by_id(store: Store, jobs: Jobs) -> None:
    ids = await jobs.add_many(4, run_at=datetime(2020, 1, 1, tzinfo=UTC))
    first = await store.claim([Range("a", 1, 2, 2, START)], payload_bytes=BUDGET)
    second = await store.claim([Range("a", 1, 2, 2, first.looked[0].last)], payload_bytes=BUDGET)
    assert sorted(job.id for job in first.jobs) + sorted(job.id for job in second.jobs) == ids
