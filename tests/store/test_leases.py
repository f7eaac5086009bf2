"""Leases: kept by those who work, taken back from those who do not."""

from collections.abc import Awaitable, Callable

import psycopg
import pytest

from relay.store import Store
from tests.store.conftest import ROLES
from tests.store.jobs import LEASE_S, Jobs, claim, claim_ids, done, webhook

ROW_LOCK = b"SELECT FROM outbox.job WHERE id = %s FOR UPDATE"
LAPSE = "locked_until = now() - interval '1 s'"


async def test_a_renewal_extends_the_lease_from_now(store: Store, jobs: Jobs) -> None:
    id_ = await jobs.add()
    [job] = await claim(store)
    await jobs.change(id_, LAPSE)
    assert await store.renew([id_], [job.claims]) == ({id_}, set())
    assert await jobs.value("SELECT locked_until > now() + %s / 2 * interval '1 s' FROM outbox.job", LEASE_S)


async def test_a_lease_that_another_replica_took_is_lost(store: Store, other: Store, jobs: Jobs) -> None:
    kept, taken = await jobs.add_many(2)
    await claim(store)
    await jobs.change(taken, LAPSE)
    await other.reclaim([webhook()], limit=10)
    await claim(other)
    assert await store.renew([kept, taken], [1, 1]) == ({kept}, {taken})
    assert (await jobs.row(taken))["locked_by"] == "second"


async def test_a_lease_of_an_older_claim_is_lost(store: Store, jobs: Jobs) -> None:
    id_ = await jobs.add()
    await claim(store)
    await jobs.change(id_, "claims = 2")
    assert await store.renew([id_], [1]) == (set(), {id_})


async def test_a_settled_job_has_no_lease_left(store: Store, jobs: Jobs) -> None:
    id_ = await jobs.add()
    await store.settle([done((await claim(store))[0])])
    assert await store.renew([id_], [1]) == (set(), {id_})


async def test_a_deleted_job_has_no_lease_left(store: Store) -> None:
    assert await store.renew([12345], [1]) == (set(), {12345})


async def test_a_lease_whose_row_is_locked_is_neither_renewed_nor_lost(store: Store, jobs: Jobs, database: str) -> None:
    held, free = await jobs.add_many(2)
    await claim(store)
    async with await psycopg.AsyncConnection.connect(database) as somebody:
        await somebody.execute(ROW_LOCK, [held])
        assert await store.renew([held, free], [1, 1]) == ({free}, set())


async def test_a_lapsed_job_is_due_again_at_once(store: Store, other: Store, jobs: Jobs) -> None:
    id_ = await jobs.add()
    await claim(store)
    await jobs.change(id_, LAPSE)
    [taken] = await other.reclaim([webhook()], limit=10)
    assert (taken.id, taken.destination, taken.entity_key, taken.status) == (id_, "a", None, "pending")
    assert taken.locked_by == "first"
    assert await claim_ids(other) == [id_]


async def test_a_reclaim_keeps_what_happened(store: Store, other: Store, jobs: Jobs) -> None:
    id_ = await jobs.add()
    await claim(store)
    await jobs.change(id_, LAPSE)
    await other.reclaim([webhook()], limit=10)
    kept = await jobs.connection.execute("SELECT job_id, claim, attempt, replica, error_class FROM outbox.attempt")
    assert await kept.fetchall() == [(id_, 1, 1, "first", "lease_expired")]


async def test_a_lease_that_has_not_lapsed_is_left_alone(store: Store, other: Store, jobs: Jobs) -> None:
    await jobs.add()
    await claim(store)
    assert await other.reclaim([webhook()], limit=10) == []


async def test_a_lapsed_job_of_an_unknown_destination_is_left_alone(store: Store, other: Store, jobs: Jobs) -> None:
    id_ = await jobs.add()
    await claim(store)
    await jobs.change(id_, LAPSE)
    assert await other.reclaim([webhook("b")], limit=10) == []
    assert await jobs.statuses(id_) == ["running"]


async def test_a_lapsed_row_that_somebody_holds_is_skipped(
    store: Store, other: Store, jobs: Jobs, database: str
) -> None:
    id_ = await jobs.add()
    await claim(store)
    await jobs.change(id_, LAPSE)
    async with await psycopg.AsyncConnection.connect(database) as somebody:
        await somebody.execute(ROW_LOCK, [id_])
        assert await other.reclaim([webhook()], limit=10) == []


async def test_a_reclaim_takes_no_more_of_a_destination_than_its_limit(store: Store, other: Store, jobs: Jobs) -> None:
    await jobs.add_many(5)
    await claim(store)
    await jobs.connection.execute("UPDATE outbox.job SET locked_until = now() - interval '1 s'")
    taken = [len(await other.reclaim([webhook()], limit=2)) for _ in range(4)]
    assert taken == [2, 2, 1, 0]


async def test_two_reclaims_take_no_job_twice(
    replica: Callable[..., Awaitable[Store]], store: Store, other: Store, jobs: Jobs, database: str
) -> None:
    first, second = await jobs.add_many(2)
    await claim(await replica("dead"))
    await jobs.connection.execute("UPDATE outbox.job SET locked_until = now() - interval '1 s'")
    async with await psycopg.AsyncConnection.connect(database) as somebody:
        await somebody.execute(ROW_LOCK, [first])
        assert [job.id for job in await store.reclaim([webhook()], limit=10)] == [second]
    assert [job.id for job in await other.reclaim([webhook()], limit=10)] == [first]


@pytest.mark.parametrize("role", list(ROLES), indirect=True)
async def test_a_reclaimed_head_is_the_next_of_its_lane(store: Store, other: Store, jobs: Jobs) -> None:
    head, second = await jobs.add_many(2, "e")
    await claim(store)
    await jobs.change(head, LAPSE)
    await other.reclaim([webhook()], limit=10)
    assert await jobs.statuses(head, second) == ["pending", "blocked"]
    assert await claim_ids(other) == [head]


async def test_a_job_that_kills_its_worker_every_time_dies_after_its_budget(
    store: Store, other: Store, jobs: Jobs
) -> None:
    id_ = await jobs.add()
    for _ in range(3):
        assert await claim_ids(store) == [id_]
        await jobs.change(id_, LAPSE)
        await other.reclaim([webhook(max_attempts=3)], limit=10)
    row = await jobs.row(id_)
    assert (row["status"], row["attempts"], row["holds_lane"]) == ("dead", 3, False)
    assert await jobs.value("SELECT count(*) FROM outbox.attempt") == 3


@pytest.mark.parametrize(("own", "status"), [(1, "dead"), (2, "pending")])
async def test_the_rows_own_budget_counts_before_the_destinations(
    store: Store, other: Store, jobs: Jobs, own: int, status: str
) -> None:
    id_ = await jobs.add(max_attempts=own)
    await claim(store)
    await jobs.change(id_, LAPSE)
    await other.reclaim([webhook(max_attempts=3 - own)], limit=10)
    assert await jobs.statuses(id_) == [status]


@pytest.mark.parametrize("role", list(ROLES), indirect=True)
async def test_a_lane_stands_behind_a_reclaimed_job_that_died_where_the_policy_blocks(
    store: Store, other: Store, jobs: Jobs
) -> None:
    head, second = await jobs.add_many(2, "e")
    await claim(store)
    await jobs.change(head, LAPSE)
    await other.reclaim([webhook(max_attempts=1)], limit=10)
    assert await jobs.statuses(head, second) == ["dead", "blocked"]
    assert await claim(store) == []


@pytest.mark.parametrize("role", list(ROLES), indirect=True)
async def test_a_lane_goes_on_after_a_reclaimed_job_that_died_where_the_policy_skips(
    store: Store, other: Store, jobs: Jobs
) -> None:
    head, second = await jobs.add_many(2, "e")
    await claim(store)
    await jobs.change(head, LAPSE)
    await other.reclaim([webhook(max_attempts=1, on_dead="skip")], limit=10)
    assert await jobs.statuses(head, second) == ["dead", "pending"]
    assert await claim_ids(other) == [second]
