"""One job in flight for each lane, and only the lane's holder; whatever defaults the relay's role has."""

import psycopg
import pytest
from psycopg import sql

from relay.rows import Range
from relay.store import Store
from tests.store.conftest import ROLES
from tests.store.jobs import BUDGET, Jobs, claim, claim_ids, done, ranges

pytestmark = pytest.mark.parametrize("role", list(ROLES), indirect=True)

ROW_LOCK = b"SELECT FROM outbox.job WHERE id = %s FOR UPDATE"
LATER = sql.SQL("now() + interval '1 hour'")


async def test_only_the_head_of_a_lane_starts_and_its_followers_are_blocked(store: Store, jobs: Jobs) -> None:
    head, *_ = ids = await jobs.add_many(3, "e")
    assert await claim_ids(store) == [head]
    assert await jobs.statuses(*ids) == ["running", "blocked", "blocked"]


async def test_another_replica_gets_nothing_of_a_lane_in_flight(store: Store, other: Store, jobs: Jobs) -> None:
    await jobs.add_many(3, "e")
    await claim(store)
    late = await jobs.add("e")
    assert await claim(other) == []
    assert await jobs.statuses(late) == ["blocked"]


async def test_lanes_of_one_entity_at_two_destinations_run_side_by_side(store: Store, jobs: Jobs) -> None:
    await jobs.add("e", destination="a")
    await jobs.add("e", destination="b")
    assert len((await store.claim([*ranges("a"), *ranges("b")], payload_bytes=BUDGET)).jobs) == 2


async def test_a_blocked_job_costs_the_next_claim_nothing(store: Store, jobs: Jobs) -> None:
    await jobs.add_many(10, "e")
    await claim(store)
    assert (await store.claim(ranges(), payload_bytes=BUDGET)).looked == []


async def test_a_head_that_waits_for_its_retry_holds_its_lane(store: Store, jobs: Jobs) -> None:
    head, second = await jobs.add_many(2, "e")
    await jobs.change(head, "run_at = now() + interval '1 hour'")
    assert await claim(store) == []
    assert await jobs.statuses(head, second) == ["pending", "blocked"]


async def test_a_scheduled_head_holds_its_lane(store: Store, jobs: Jobs) -> None:
    head = await jobs.add("e", run_at=LATER)
    second = await jobs.add("e")
    assert await claim(store) == []
    assert await jobs.statuses(head, second) == ["pending", "blocked"]


async def test_a_scheduled_follower_does_not_hold_its_lane(store: Store, jobs: Jobs) -> None:
    head = await jobs.add("e")
    await jobs.add("e", run_at=LATER)
    assert await claim_ids(store) == [head]


async def test_a_better_priority_does_not_overtake_within_a_lane(store: Store, jobs: Jobs) -> None:
    head = await jobs.add("e", priority=3)
    await jobs.add("e", priority=0)
    assert await claim_ids(store) == [head]


async def test_a_follower_rings_for_a_head_outside_of_the_window(store: Store, jobs: Jobs) -> None:
    head, second = await jobs.add_many(2, "e")
    await jobs.change(second, "run_at = now() - interval '1 hour'")
    assert [job.id for job in (await store.claim([Range("a", 1, 1, 1)], payload_bytes=BUDGET)).jobs] == [head]
    assert await jobs.statuses(second) == ["blocked"]


async def test_a_dead_head_that_holds_its_lane_blocks_it(store: Store, jobs: Jobs) -> None:
    head, second = await jobs.add_many(2, "e")
    await jobs.change(head, "status = 'dead', finished_at = now()")
    assert await claim(store) == []
    assert await jobs.statuses(second) == ["blocked"]


async def test_a_dead_head_that_let_go_of_its_lane_blocks_nothing(store: Store, jobs: Jobs) -> None:
    head, second = await jobs.add_many(2, "e")
    await jobs.change(head, "status = 'dead', finished_at = now(), holds_lane = false")
    assert await claim_ids(store) == [second]


async def test_a_blocked_holder_is_started_when_its_lane_is_looked_at(store: Store, jobs: Jobs) -> None:
    head, *_ = ids = await jobs.add_many(2, "e")
    await jobs.change(head, "status = 'blocked'")
    assert await claim_ids(store) == [head]
    assert await jobs.statuses(*ids) == ["running", "blocked"]


async def test_a_blocked_holder_without_a_free_slot_becomes_pending(store: Store, jobs: Jobs) -> None:
    quiet = await jobs.add()
    head, second = await jobs.add_many(2, "e")
    await jobs.change(head, "status = 'blocked', run_at = now()")
    assert await claim_ids(store, free=1) == [quiet]
    assert await jobs.statuses(head, second) == ["pending", "blocked"]
    assert await claim_ids(store) == [head]


async def test_a_blocked_holder_without_room_for_its_payload_becomes_pending(store: Store, jobs: Jobs) -> None:
    head, second = await jobs.add_many(2, "e", payload=f'"{"x" * 1000}"')
    await jobs.change(head, "status = 'blocked'")
    assert (await store.claim(ranges(), payload_bytes=100)).jobs == []
    assert await jobs.statuses(head, second) == ["pending", "blocked"]


async def test_a_lower_id_that_commits_while_its_lane_runs_starts_next(store: Store, jobs: Jobs) -> None:
    late = await jobs.skip_id()
    first, second = await jobs.add_many(2, "e")
    [running] = await claim(store)
    await jobs.add("e", id=late)
    assert (running.id, await claim(store)) == (first, [])
    assert await jobs.statuses(late, first, second) == ["blocked", "running", "blocked"]
    settled = await store.settle([done(running, chain=True)])
    assert [job.id for job in settled.started] == [late]


async def test_a_lower_id_that_commits_after_the_lane_was_delivered_is_delivered_late(store: Store, jobs: Jobs) -> None:
    late = await jobs.skip_id()
    await jobs.add("e")
    await store.settle([done((await claim(store))[0])])
    await jobs.add("e", id=late)
    assert await claim_ids(store) == [late]


async def test_ids_that_were_rolled_back_hold_nothing_up(store: Store, jobs: Jobs) -> None:
    await jobs.skip_id()
    id_ = await jobs.add("e")
    assert await claim_ids(store) == [id_]


async def test_a_lane_whose_holder_somebody_locks_is_left_as_it_is(store: Store, jobs: Jobs, database: str) -> None:
    ids = await jobs.add_many(3, "e")
    quiet = await jobs.add("quiet")
    async with await psycopg.AsyncConnection.connect(database) as somebody:
        await somebody.execute(ROW_LOCK, [ids[0]])
        assert await claim_ids(store) == [quiet]
        assert await jobs.statuses(*ids) == ["pending"] * 3
    assert await claim_ids(store) == [ids[0]]


async def test_a_lane_whose_running_holder_is_locked_is_left_as_it_is(store: Store, jobs: Jobs, database: str) -> None:
    head = await jobs.add("e")
    await claim(store)
    second = await jobs.add("e")
    async with await psycopg.AsyncConnection.connect(database) as somebody:
        await somebody.execute(ROW_LOCK, [head])
        assert await claim(store) == []
        assert await jobs.statuses(second) == ["pending"]


async def test_entity_keys_that_sort_next_to_each_other_are_lanes_of_their_own(store: Store, jobs: Jobs) -> None:
    keys = ["e", "e ", "E", "e\u0301", "é", "日本", "ee", "\u0001"]
    ids = [await jobs.add(key) for key in keys]
    assert await claim_ids(store) == ids
