"""A claim and a settle of one lane, in the orders that could strand a job; whatever defaults the relay's role has."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import psycopg
import pytest
from psycopg import IsolationLevel
from psycopg.types.numeric import Int8Dumper

from relay import rows
from relay.database import CONFLICTS, Database
from relay.model import Job, Settlement
from relay.store import Store
from tests.conftest import Connection
from tests.store.conftest import ROLES
from tests.store.gate import Gate
from tests.store.jobs import LEASE_S, Jobs, claim, claim_ids, dead, done, retry, statement, webhook

every_role = pytest.mark.parametrize("role", list(ROLES), indirect=True)


@pytest.fixture
async def gate(connection: Connection) -> AsyncIterator[Gate]:
    """A gate that is down after the test."""
    gate = Gate(connection)
    yield gate
    await gate.remove()


def outcomes(*settlements: Settlement, locked_by: str = "first") -> rows.Parameters:
    """The parameters of the first statement of a settle."""
    return {**rows.outcome_parameters(settlements), **rows.failure_parameters(settlements), "locked_by": locked_by}


def lanes(*settlements: Settlement, locked_by: str = "first") -> rows.Parameters:
    """The parameters of its second statement."""
    return {**rows.lane_parameters(rows.lanes_of(settlements)), "locked_by": locked_by, "lease_s": LEASE_S}


async def a_claim_blocks_a_follower(
    store: Store, other: Store, jobs: Jobs, gate: Gate
) -> tuple[Job, int, asyncio.Task[list[Job]]]:
    """`store` runs the head; a claim of `other` holds the head's lock and is stopped while it blocks the follower."""
    await jobs.add("e")
    [head] = await claim(store)
    follower = await jobs.add("e")
    await gate.close("blocked")
    claiming = asyncio.create_task(claim(other))
    await gate.stopped("second")
    return head, follower, claiming


@every_role
@pytest.mark.parametrize("chain", [True, False])
async def test_a_settle_that_waits_for_a_claim_sees_what_the_claim_blocked(
    store: Store, other: Store, jobs: Jobs, gate: Gate, *, chain: bool
) -> None:
    head, follower, claiming = await a_claim_blocks_a_follower(store, other, jobs, gate)
    settling = asyncio.create_task(store.settle([done(head, chain=chain)]))
    await gate.waits("first")
    await gate.open()
    assert await claiming == []
    settled = await settling
    assert [job.id for job in settled.started] == [follower] * chain
    assert await jobs.statuses(head.id, follower) == ["done", "running" if chain else "pending"]


@every_role
async def test_a_dead_letter_that_waits_for_a_claim_frees_what_the_claim_blocked(
    store: Store, other: Store, jobs: Jobs, gate: Gate
) -> None:
    head, follower, claiming = await a_claim_blocks_a_follower(store, other, jobs, gate)
    settling = asyncio.create_task(store.settle([dead(head, blocks=False)]))
    await gate.waits("first")
    await gate.open()
    await asyncio.gather(claiming, settling)
    assert await jobs.statuses(head.id, follower) == ["dead", "pending"]


@every_role
async def test_a_reclaim_skips_a_lane_that_a_claim_is_blocking(
    replica: Callable[..., Awaitable[Store]], other: Store, jobs: Jobs, gate: Gate
) -> None:
    store = await replica("first", lease_s=0.0)
    head, follower, claiming = await a_claim_blocks_a_follower(store, other, jobs, gate)
    skipping = [webhook(max_attempts=1, on_dead="skip")]
    assert await store.reclaim(skipping, limit=10) == []
    await gate.open()
    await claiming
    assert [job.id for job in await store.reclaim(skipping, limit=10)] == [head.id]
    assert await jobs.statuses(head.id, follower) == ["dead", "pending"]


@every_role
@pytest.mark.parametrize("chain", [True, False])
async def test_a_claim_that_meets_a_settle_leaves_the_lane_pending(
    open_database: Callable[..., Awaitable[Database]], store: Store, other: Store, jobs: Jobs, *, chain: bool
) -> None:
    await jobs.add("e")
    [head] = await claim(store)
    follower = await jobs.add("e")
    settlement = done(head, chain=chain)
    async with (await open_database()).transaction() as transaction:
        await transaction.fetch("settle", outcomes(settlement))
        assert await claim(other) == []
        assert await jobs.statuses(head.id, follower) == ["running", "pending"]
        await transaction.fetch("settle_lanes", lanes(settlement))
        assert await claim(other) == []
    assert await jobs.statuses(head.id, follower) == ["done", "running" if chain else "pending"]
    assert await claim_ids(other) == [follower] * (not chain)


async def test_a_claim_between_a_settles_read_and_its_lock_of_the_holder_does_not_start_it_twice(
    store: Store, other: Store, jobs: Jobs, gate: Gate
) -> None:
    await jobs.add("e")
    [head] = await claim(store)
    follower = await jobs.add("e")
    await jobs.change(follower, "status = 'blocked'")
    await gate.close("running")
    settling = asyncio.create_task(store.settle([done(head, chain=True)]))
    await gate.stopped("first")
    assert await claim(other) == []
    await gate.open()
    assert [job.id for job in (await settling).started] == [follower]
    assert (await jobs.row(follower))["claims"] == 1


@every_role
async def test_a_settle_that_chains_waits_for_the_claim_that_starts_the_job(
    store: Store, other: Store, jobs: Jobs, gate: Gate
) -> None:
    late = await jobs.skip_id()
    head = await jobs.add("e")
    [running] = await claim(store)
    await store.settle([done(running)])
    follower = await jobs.add("e")
    await gate.close("running", "AFTER")
    claiming = asyncio.create_task(claim(other))
    await gate.stopped("second")
    # A result that comes twice still goes on with its lane.
    settling = asyncio.create_task(store.settle([done(running, chain=True)]))
    await gate.waits("first")
    await gate.open()
    assert [job.id for job in await claiming] == [follower]
    assert (await settling).started == []
    assert (await jobs.row(follower))["locked_by"] == "second"
    assert late < head


async def test_a_policy_change_beside_the_settle_of_a_late_job_leaves_nobody_behind(
    open_database: Callable[..., Awaitable[Database]], store: Store, other: Store, jobs: Jobs, gate: Gate
) -> None:
    """Fails when standing lanes go on without the lock of their holder: the dead job is not it."""
    late = await jobs.skip_id()
    await jobs.add("e")
    await store.settle([dead((await claim(store))[0], blocks=True)])
    last = await jobs.add("e")
    await claim(store)
    await jobs.connection.execute(
        "INSERT INTO outbox.job (id, destination, topic, entity_key, payload) OVERRIDING SYSTEM VALUE"
        " VALUES (%s, 'a', 't', 'e', '{}')",
        (late,),
    )
    [running] = await claim(store)
    assert running.id == late
    settlement = done(running)
    async with (await open_database()).transaction() as transaction:
        await transaction.fetch("settle", outcomes(settlement))
        releasing = asyncio.create_task(other.release_standing_lanes(["a"], limit=10))
        await gate.waits("second")
        await transaction.fetch("settle_lanes", lanes(settlement))
    assert await releasing == 1
    assert await jobs.statuses(late, last) == ["done", "pending"]


async def settle_in_one_snapshot(dsn: str, settlement: Settlement) -> None:
    """The broken variant: the second statement reads what the first one saw."""
    async with await psycopg.AsyncConnection.connect(dsn, application_name="first") as connection:
        await connection.set_isolation_level(IsolationLevel.REPEATABLE_READ)
        connection.adapters.register_dumper(int, Int8Dumper)
        await connection.execute(statement("settle"), outcomes(settlement))
        await connection.execute(statement("settle_lanes"), lanes(settlement))


async def test_a_settle_in_one_snapshot_strands_the_lane_and_this_harness_sees_it(
    store: Store, other: Store, jobs: Jobs, gate: Gate, database: str
) -> None:
    head, follower, claiming = await a_claim_blocks_a_follower(store, other, jobs, gate)
    settling = asyncio.create_task(settle_in_one_snapshot(database, done(head)))
    await gate.waits("first")
    await gate.open()
    await asyncio.gather(claiming, settling)
    assert await jobs.statuses(head.id, follower) == ["done", "blocked"]
    assert await jobs.stranded() == [("a", "e")]
    assert await claim(store) == []
    # What the safety net is for.
    assert (await store.heal(("", ""), limit=10))[0] == [("a", "e")]
    assert await claim_ids(store) == [follower]


async def test_a_claim_that_waits_for_a_lane_another_claim_starts_gives_up_and_changes_nothing(
    store: Store, other: Store, jobs: Jobs, gate: Gate
) -> None:
    late = await jobs.skip_id()
    higher = await jobs.add("e")
    await gate.close("running", "AFTER")
    claiming = asyncio.create_task(claim(store))
    await gate.stopped("first")
    await jobs.add("e", id=late)
    with pytest.raises(CONFLICTS):
        await claim(other)
    assert await jobs.statuses(late, higher) == ["pending", "pending"]
    await gate.open()
    assert [job.id for job in await claiming] == [higher]


async def test_a_claim_that_waited_for_a_lane_another_claim_started_tries_again_and_succeeds(
    store: Store, other: Store, jobs: Jobs, gate: Gate
) -> None:
    late = await jobs.skip_id()
    higher = await jobs.add("e")
    await gate.close("running", "AFTER")
    first = asyncio.create_task(claim(store))
    await gate.stopped("first")
    await jobs.add("e", id=late)
    quiet = await jobs.add("quiet")
    second = asyncio.create_task(claim(other))
    # It waits on the lane, not at the gate, until its lock timeout or the other's commit.
    await gate.waits("second")
    await gate.open()
    assert [job.id for job in await first] == [higher]
    assert [job.id for job in await second] == [quiet]
    assert await jobs.statuses(late, higher, quiet) == ["blocked", "running", "running"]


async def test_a_retry_written_while_a_claim_looks_keeps_the_lane_in_order(
    store: Store, other: Store, jobs: Jobs, gate: Gate
) -> None:
    head, follower, claiming = await a_claim_blocks_a_follower(store, other, jobs, gate)
    settling = asyncio.create_task(store.settle([retry(head, 0.0)]))
    await gate.waits("first")
    await gate.open()
    await asyncio.gather(claiming, settling)
    assert await jobs.statuses(head.id, follower) == ["pending", "blocked"]
    assert await claim_ids(other) == [head.id]


async def test_a_claim_cut_off_in_the_middle_leaves_no_trace(
    store: Store, other: Store, jobs: Jobs, gate: Gate
) -> None:
    head, follower, claiming = await a_claim_blocks_a_follower(store, other, jobs, gate)
    await jobs.value("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'second'")
    with pytest.raises(psycopg.OperationalError):
        await claiming
    await gate.open()
    assert await jobs.statuses(head.id, follower) == ["running", "pending"]
    assert [job.id for job in (await store.settle([done(head, chain=True)])).started] == [follower]
