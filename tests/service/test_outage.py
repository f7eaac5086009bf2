"""The database goes away in mid-run: nothing is lost, nothing overtakes, and the replicas come back by themselves."""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence

import psycopg
import pytest
from aiohttp import web

from relay.demo.postgres import Postgres
from tests.conftest import POOLER
from tests.receiver import Arrival, Receiver
from tests.service.replica import Installation, Replica
from tests.service.table import counts, rows, until

ENTITIES, JOBS, SLOTS = 16, 400, 4
OUTAGE_S = 10.0
# A claim whose answer was lost is taken back after the lease, so it is the shortest that the deadline allows.
SHORT = {"lease_s": 8.5, "drain_s": 8.5, "termination_grace_s": 20, "poll_s": 0.5}

Trouble = Callable[[Postgres, Sequence[Replica]], Awaitable[None]]


async def stopped_for_ten_seconds(postgres: Postgres, replicas: Sequence[Replica]) -> None:
    since_s = time.monotonic()
    await asyncio.to_thread(postgres.stop)
    for replica in replicas:
        await replica.event("database_away")
    # The length of the outage is what this is about.
    await asyncio.sleep(OUTAGE_S - (time.monotonic() - since_s))
    await asyncio.to_thread(postgres.start)
    for replica in replicas:
        await replica.event("database_back")


async def demoted(postgres: Postgres, replicas: Sequence[Replica]) -> None:
    """A failover: the server they know comes back as a standby, and is promoted later."""
    await asyncio.to_thread(postgres.stop)
    await asyncio.to_thread(postgres.start, standby=True)
    for replica in replicas:
        await replica.event("database_away")
    # Long enough for each loop, and the listener, to meet the standby.
    await asyncio.sleep(3)
    assert [replica.process.poll() for replica in replicas] == [None, None]
    async with await psycopg.AsyncConnection.connect(postgres.dsn(), autocommit=True) as connection:
        await connection.execute("SELECT pg_promote()")
    for replica in replicas:
        await replica.event("database_back")


async def crashed(postgres: Postgres, _replicas: Sequence[Replica]) -> None:
    await asyncio.to_thread(postgres.kill)
    await asyncio.to_thread(postgres.start)


async def backends_terminated(postgres: Postgres, _replicas: Sequence[Replica]) -> None:
    async with await psycopg.AsyncConnection.connect(postgres.dsn(), autocommit=True) as connection:
        ended: list[int] = []
        for _ in range(5):
            found = await rows(
                connection,
                "SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = 'relay' AND application_name LIKE 'relay %%' AND pid <> ALL (%s)",
                ended,
            )
            assert found
            ended += [pid for pid, _ in found]
            # They are back; one that is still ending is listed for a while.
            await until(
                connection,
                "SELECT count(*) >= 2 FROM pg_stat_activity"
                " WHERE datname = 'relay' AND application_name LIKE 'relay %%' AND pid <> ALL (%s)",
                ended,
            )


@pytest.mark.parametrize("trouble", [stopped_for_ten_seconds, crashed, demoted, backends_terminated])
async def test_nothing_is_lost_and_order_holds_while_the_database_is(
    trouble: Trouble, installation: Installation, database: str, receiver: Receiver, postgres: Postgres
) -> None:
    async def work(_arrival: Arrival) -> web.StreamResponse:
        # The receiver's work: long enough for the trouble to find jobs in flight.
        await asyncio.sleep(0.02)
        return web.Response(status=204)

    receiver.answer = work
    installation.configure(
        {"shop": {"url": receiver.url(), "max_in_flight": SLOTS}}, replica=SHORT, defaults={"deadline_s": 3}
    )
    replicas = await installation.start_two()
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
        await connection.execute(
            "INSERT INTO outbox.job (topic, destination, entity_key, payload)"
            " SELECT 't', 'shop', 'entity-' || n %% %s, '{}' FROM generate_series(1, %s) n",
            (ENTITIES, JOBS),
        )
    await receiver.wait_for(JOBS // 10)
    await trouble(postgres, replicas)

    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
        await until(connection, "SELECT count(*) = %s FROM outbox.job WHERE status = 'done'", JOBS)
        assert await counts(connection) == {"done": JOBS}
        # New jobs are heard of as before, where anything is heard.
        if POOLER != "poll":
            await until(
                connection,
                "SELECT count(*) = 2 FROM pg_stat_activity"
                " WHERE datname = current_database() AND application_name LIKE 'relay % listen'",
            )
        await connection.execute("INSERT INTO outbox.job (topic, destination, payload) VALUES ('t', 'shop', '{}')")
        await until(connection, "SELECT count(*) = %s FROM outbox.job WHERE status = 'done'", JOBS + 1)
    assert [replica.process.poll() for replica in replicas] == [None, None]
    assert_nothing_overtook(receiver.arrivals)
    assert [await replica.stop() for replica in replicas] == [0, 0]


def assert_nothing_overtook(arrivals: Sequence[Arrival]) -> None:
    """Each entity's jobs come in order; what comes twice comes before its successor, and was in flight."""
    lanes: dict[str, list[int]] = defaultdict(list)
    for arrival in arrivals:
        if "Relay-Entity-Key" in arrival.headers:
            lanes[arrival.headers["Relay-Entity-Key"]].append(arrival.sequence)
    assert sorted({job for lane in lanes.values() for job in lane}) == list(range(1, JOBS + 1))
    for lane in lanes.values():
        assert lane == sorted(lane)
    twice = sum(number - 1 for lane in lanes.values() for number in Counter(lane).values())
    assert twice <= 2 * SLOTS * 5
