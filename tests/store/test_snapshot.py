"""What changes between a claim's snapshot and its first lock: a claim must not act on the row it saw."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from relay import rows
from relay.database import Database
from relay.store import Store
from tests.conftest import Connection
from tests.store.gate import Gate
from tests.store.jobs import Jobs, claim, claim_ids, dead, retry

# The first thing that a claim reads is whether a destination is paused. Here it must pass the gate to learn it.
CLOSE = """
INSERT INTO outbox.destination (name) VALUES ('a');
ALTER TABLE outbox.destination RENAME TO destination_behind_the_gate;
CREATE FUNCTION public.pass() RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = 0 AS $$
BEGIN
    IF current_setting('application_name') = 'second' THEN
        PERFORM pg_advisory_xact_lock_shared(4711);
    END IF;
    RETURN true;
END $$;
CREATE VIEW outbox.destination AS
SELECT d.name, CASE WHEN public.pass() THEN d.paused_at END AS paused_at FROM outbox.destination_behind_the_gate d;
GRANT SELECT ON outbox.destination TO outbox_relay;
SELECT pg_advisory_lock(4711)
"""
REMOVE = """
DROP VIEW outbox.destination;
DROP FUNCTION public.pass;
ALTER TABLE outbox.destination_behind_the_gate RENAME TO destination
"""


@pytest.fixture
async def gate(connection: Connection) -> AsyncIterator[Gate]:
    """Closed to claims of `second`, between their snapshot and all that they read; gone after the test."""
    gate = Gate(connection)
    await connection.execute(CLOSE.encode())
    yield gate
    await gate.open()
    await connection.execute("SET lock_timeout = '10s'")
    await connection.execute(REMOVE.encode())


async def test_a_job_that_ran_in_the_snapshot_and_failed_since_does_not_overtake_a_lower_one(
    open_database: Callable[..., Awaitable[Database]], store: Store, other: Store, jobs: Jobs, gate: Gate
) -> None:
    late = await jobs.skip_id()
    higher = await jobs.add("e")
    [running] = await claim(store)
    await jobs.add("e", id=late)
    failed = retry(running, 0.0)
    # The transaction is older than the claim, so that by the claim's time the job is due again.
    async with (await open_database("settling")).transaction() as settling:
        claiming = asyncio.create_task(claim_ids(other))
        await gate.stopped("second")
        outcomes = {**rows.outcome_parameters([failed]), **rows.failure_parameters([failed]), "locked_by": "first"}
        assert [row[0] for row in await settling.fetch("settle", outcomes)] == [higher]
        lanes = rows.lane_parameters(rows.lanes_of([failed]))
        assert await settling.fetch("settle_lanes", {**lanes, "locked_by": "first", "lease_s": 60.0}) == []
    await gate.open()
    assert await claiming == []
    assert await claim_ids(other) == [late]
    assert await jobs.statuses(late, higher) == ["running", "blocked"]


async def test_a_dead_holder_that_was_redriven_since_the_snapshot_of_a_claim_is_claimed(
    open_database: Callable[..., Awaitable[Database]], store: Store, other: Store, jobs: Jobs, gate: Gate
) -> None:
    """Constraints are checked on what the snapshot's version would become, so that must be possible too."""
    head = await jobs.add("e")
    [running] = await claim(store)
    await store.settle([dead(running, blocks=True)])
    await jobs.add("e")
    # The transaction is older than the claim, so that by the claim's time the job is due again.
    async with (await open_database("operator")).transaction() as redriving:
        claiming = asyncio.create_task(claim_ids(other))
        await gate.stopped("second")
        asked = {"ids": [head], "force": False, "delivered": False, "actor": "test", "why": None}
        assert len(await redriving.fetch("redrive", asked)) == 1
    await gate.open()
    assert await claiming == [head]
