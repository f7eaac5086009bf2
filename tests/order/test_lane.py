"""Who of a lane may run: situations 1 to 4, 13, 14, and 17 to 19."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from psycopg import AsyncConnection, sql

from relay.model import Job, Settlement
from relay.store import Store
from tests.conftest import Connection
from tests.order.lane import deliver
from tests.store.gate import Gate
from tests.store.jobs import BUDGET, Jobs, claim, claim_ids, dead, done, ranges, release, retry


@pytest.fixture
async def gate(connection: Connection) -> AsyncIterator[Gate]:
    """A gate that is down after the test."""
    gate = Gate(connection)
    yield gate
    await gate.remove()


async def test_01_two_replicas_claim_one_lane(store: Store, other: Store, jobs: Jobs, gate: Gate) -> None:
    """Fails when a claim waits for a holder that another one has locked, or starts a job that is not the holder."""
    head, second = await jobs.add_many(2, "e")
    quiet = await jobs.add_many(3)
    await gate.close("running", "AFTER")
    first = asyncio.create_task(claim_ids(store, free=1, width=1))
    await gate.stopped("first")
    smaller = asyncio.create_task(claim_ids(other))
    # It has chosen its jobs while the first claim still holds the lane, and was not aborted.
    await gate.stopped("second")
    await gate.open()
    assert (await first, await smaller) == ([head], quiet)
    assert await jobs.statuses(head, second) == ["running", "pending"]


async def test_02_head_waits_for_its_retry(store: Store, jobs: Jobs) -> None:
    """Fails when a claim leaves a follower due instead of blocking it."""
    head, *followers = await jobs.add_many(3, "e")
    [running] = await claim(store)
    await store.settle([retry(running)])
    followers.append(await jobs.add("e"))
    assert await claim(store) == []
    assert await jobs.statuses(head, *followers) == ["pending", "blocked", "blocked", "blocked"]
    # A poll meets none of them any more.
    assert (await store.claim(ranges(), payload_bytes=BUDGET)).looked == []
    await jobs.change(head, "run_at = now()")
    assert await deliver(store) == [head, *followers]


async def test_03_head_done(store: Store, jobs: Jobs) -> None:
    """Fails when the settle leaves the successor to the next claim, or to a transaction of its own."""
    head, second, third = await jobs.add_many(3, "e")
    settled = await store.settle([done((await claim(store))[0], chain=True)])
    assert [(job.id, job.attempts) for job in settled.started] == [(second, 1)]
    assert await jobs.statuses(head, second, third) == ["done", "running", "blocked"]
    assert (await jobs.row(second))["locked_by"] == "first"
    assert await jobs.value("SELECT count(DISTINCT xmin::text) FROM outbox.job WHERE status <> 'blocked'") == 1


@pytest.mark.parametrize("outcome", [lambda job: retry(job, 0.0, chain=True), release], ids=["failed", "given back"])
async def test_04_a_batch_window_holds_three_jobs_of_a_lane(
    store: Store, other: Store, jobs: Jobs, outcome: Callable[[Job], Settlement]
) -> None:
    """Fails when a settle looks for the next job of the lane behind the one that failed."""
    ids = await jobs.add_many(3, "e")
    [running] = await claim(store, width=3)
    assert await jobs.statuses(*ids) == ["running", "blocked", "blocked"]
    settled = await store.settle([outcome(running)])
    again = [job.id for job in settled.started] or await claim_ids(other)
    assert again == [ids[0]]
    assert await jobs.statuses(*ids) == ["running", "blocked", "blocked"]


async def test_13_head_scheduled_for_later(store: Store, jobs: Jobs) -> None:
    """Fails when only due jobs count as holders."""
    head = await jobs.add("e", run_at=sql.SQL("now() + interval '1 hour'"))
    second = await jobs.add("e")
    assert await claim(store) == []
    assert await jobs.statuses(head, second) == ["pending", "blocked"]
    await jobs.change(head, "run_at = now()")
    assert await deliver(store) == [head, second]


async def test_14_priority(store: Store, jobs: Jobs) -> None:
    """Fails when a lane's most urgent job is its holder, or when ranges are served in any order."""
    later = await jobs.add("later", priority=3)
    head = await jobs.add("e", priority=2)
    await jobs.add("e", priority=0)
    urgent = await jobs.add("urgent", priority=0)
    order = [await claim_ids(store, free=1) for _ in range(3)]
    # The second job of `e` makes its lane urgent, and still waits for the first.
    assert order == [[head], [urgent], [later]]


async def test_17_several_jobs_of_one_entity_in_one_transaction(store: Store, jobs: Jobs, database: str) -> None:
    """Fails when a lane goes on with anything but its lowest id: all have one due time."""
    await jobs.connection.execute("INSERT INTO outbox.destination (name, topics) VALUES ('a', '{t}'), ('b', '{t}')")
    async with await AsyncConnection.connect(database) as producer:
        await producer.execute("INSERT INTO outbox.job (topic, entity_key, payload) VALUES ('t', 'e', '1')")
        await producer.execute(
            "INSERT INTO outbox.job (topic, entity_key, payload)"
            " VALUES ('t', 'e', '2'), ('t', 'e', '3'), ('t', 'other', '0'), ('t', 'e', '4')"
        )
        async with producer.cursor().copy("COPY outbox.job (topic, entity_key, payload) FROM STDIN") as copy:
            await copy.write("t\te\t5\nt\te\t6\n")
    for destination in ("a", "b"):
        inserted = await jobs.value(
            "SELECT array_agg(id ORDER BY payload::text) FROM outbox.job WHERE destination = %s AND entity_key = 'e'",
            destination,
        )
        started = await deliver(store, destination)
        assert [id_ for id_ in started if id_ in inserted] == inserted
        assert len(inserted) == 6


async def test_18_entity_key_null(store: Store, jobs: Jobs) -> None:
    """Fails when jobs without an entity are taken for a lane."""
    ids = await jobs.add_many(20)
    first, *running = await claim(store)
    assert [first.id, *(job.id for job in running)] == ids
    await store.settle([retry(first), dead(running[0], blocks=False)])
    later = await jobs.add()
    assert await claim_ids(store) == [later]


async def test_19_fan_out_to_several_destinations(store: Store, jobs: Jobs) -> None:
    """Fails when a lane is told by its entity key alone."""
    names = ["a", "b", "c"]
    for name in names:
        await jobs.connection.execute("INSERT INTO outbox.destination (name, topics) VALUES (%s, '{t}')", [name])
    await jobs.add_many(2, "e", destination=None)
    lanes: dict[str, list[int]] = {
        name: await jobs.value("SELECT array_agg(id ORDER BY id) FROM outbox.job WHERE destination = %s", name)
        for name in names
    }
    assert [len(ids) for ids in lanes.values()] == [2, 2, 2]
    # One in flight, one dead: neither holds up the third.
    assert await claim_ids(store, "a") == lanes["a"][:1]
    await store.settle([dead((await claim(store, "b"))[0], blocks=True)])
    assert await deliver(store, "c") == lanes["c"]
    assert await jobs.statuses(*lanes["a"], *lanes["b"]) == ["running", "dead", "blocked", "blocked"]
