"""Ids that become visible in another order than they were drawn, or never: situations 15 and 16."""

import asyncio

import pytest
from psycopg import AsyncConnection

from relay.store import Store
from tests.order.lane import deliver
from tests.store.gate import Gate
from tests.store.jobs import Jobs, claim, done

INSERT = "INSERT INTO outbox.job (destination, topic, entity_key, payload) VALUES ('a', 't', 'e', '{}') RETURNING id"
ENQUEUE = "SELECT outbox.enqueue_ordered('t', 'e', '{}', 'a')"


async def insert(producer: AsyncConnection, statement: str = INSERT) -> int:
    """One job of the one entity, in the producer's transaction; its id."""
    row = await (await producer.execute(statement.encode())).fetchone()
    assert row is not None
    return int(row[0])


async def test_15_lower_id_commits_after_a_higher_one_was_delivered(store: Store, jobs: Jobs, database: str) -> None:
    """Fails when a job that comes late is taken for an old one."""
    async with await AsyncConnection.connect(database) as slow:
        late = await insert(slow)
        earlier = await insert(jobs.connection)
        assert await deliver(store) == [earlier]
        await slow.commit()
    assert late < earlier
    assert await deliver(store) == [late]


@pytest.mark.parametrize("chain", [True, False])
async def test_15_lower_id_commits_while_a_higher_one_runs(
    store: Store, jobs: Jobs, database: str, *, chain: bool
) -> None:
    """Fails when a settle looks for the next job only behind the one that is done."""
    async with await AsyncConnection.connect(database) as slow:
        late = await insert(slow)
        earlier, last = await insert(jobs.connection), await insert(jobs.connection)
        [running] = await claim(store)
        await slow.commit()
    assert await claim(store) == []
    assert await jobs.statuses(late, earlier, last) == ["blocked", "running", "blocked"]
    started = (await store.settle([done(running, chain=chain)])).started or await claim(store)
    assert [job.id for job in started] == [late]
    await store.settle([done(started[0])])
    assert await deliver(store) == [last]


async def test_15_producers_that_enqueue_ordered_commit_in_id_order(store: Store, jobs: Jobs, database: str) -> None:
    """Fails when the function draws the id before it has the entity's lock."""
    async with (
        await AsyncConnection.connect(database) as slow,
        await AsyncConnection.connect(database, application_name="quick", autocommit=True) as quick,
    ):
        first = await insert(slow, ENQUEUE)
        second = asyncio.create_task(insert(quick, ENQUEUE))
        await Gate(jobs.connection).stopped("quick")
        # Nothing can overtake what has not committed yet.
        assert await deliver(store) == []
        await slow.commit()
        assert first < await second
    assert await deliver(store) == [first, await second]


async def test_16_rolled_back_ids(store: Store, jobs: Jobs, database: str) -> None:
    """Fails when a lane waits for the id after the one it has delivered."""
    async with await AsyncConnection.connect(database) as rolled_back, await AsyncConnection.connect(database) as open_:
        gaps = [await insert(rolled_back)]
        ids = [await insert(jobs.connection)]
        gaps += [await insert(rolled_back), await insert(open_)]
        ids += [await insert(jobs.connection), await insert(jobs.connection)]
        await rolled_back.rollback()
        assert await deliver(store) == ids
        await open_.rollback()
    assert sorted([*gaps, *ids]) == list(range(1, 7))
    assert await jobs.statuses() == ["done"] * 3
