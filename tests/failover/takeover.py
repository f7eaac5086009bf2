"""A standby takes over under load: what a synchronous one keeps, and what an asynchronous one forgets."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
from aiohttp import web

from relay.demo.nest import Nest
from relay.migrate import migrate
from tests.failover.standby import Pair, fail_over, pair
from tests.receiver import Arrival, Receiver, accept
from tests.service.replica import Installation, Replica

ENTITIES = 20
SLOTS = 8
INSERT = """
INSERT INTO outbox.job (topic, destination, entity_key, idempotency_key, payload)
VALUES ('order.paid', 'shop', %s, %s, '{}')
"""


@asynccontextmanager
async def running(nest: Nest, folder: Path, servers: Pair, receiver: Receiver) -> AsyncIterator[list[Replica]]:
    """Two replicas that know both servers by one DSN."""
    servers.primary.create_database("relay")
    await migrate(servers.dsn("relay"))
    installation = Installation(nest, folder, servers.dsn("relay"))
    installation.configure(
        {"shop": {"url": receiver.url(), "max_in_flight": SLOTS}},
        replica={"lease_s": 10, "drain_s": 9, "termination_grace_s": 20},
        defaults={"deadline_s": 3},
    )
    replicas = list(await installation.start_two())
    yield replicas
    assert [replica.process.poll() for replica in replicas] == [None, None]
    assert [await replica.stop() for replica in replicas] == [0, 0]
    await installation.close()


async def produce(dsn: str, keys: Sequence[str]) -> list[str]:
    """Inserts one job after the other, through a failover too; the keys whose commit was acknowledged."""
    acknowledged: list[str] = []
    waiting = list(enumerate(keys))
    while waiting:
        try:
            async with await psycopg.AsyncConnection.connect(dsn, autocommit=True, connect_timeout=2) as connection:
                while waiting:
                    number, key = waiting.pop(0)
                    await connection.execute(INSERT, (f"entity-{number % ENTITIES}", key))
                    acknowledged.append(key)
        except psycopg.OperationalError:
            # The last one may be committed or not: nobody was told.
            continue
    return acknowledged


async def delivered(receiver: Receiver, keys: Sequence[str]) -> None:
    """Returns when each of `keys` has been answered."""
    wanted = set(keys)
    await receiver.wait_until(lambda arrivals: wanted <= {arrival.key for arrival in arrivals}, timeout_s=60)


def lanes(arrivals: Sequence[Arrival]) -> dict[str, list[int]]:
    """The jobs of each entity in the order they arrived."""
    found: dict[str, list[int]] = defaultdict(list)
    for arrival in arrivals:
        found[arrival.headers["Relay-Entity-Key"]].append(arrival.sequence)
    return found


async def test_no_acknowledged_job_is_lost_when_a_synchronous_standby_takes_over(
    nest: Nest, tmp_path: Path, receiver: Receiver
) -> None:
    with pair(synchronous=True) as servers:
        async with running(nest, tmp_path, servers, receiver) as replicas:
            producing = asyncio.create_task(produce(servers.dsn("relay"), [f"key-{n}" for n in range(2000)]))
            await receiver.wait_for(200)
            await fail_over(servers)
            for replica in replicas:
                await replica.event("database_back")
            acknowledged = await producing
            # At most one commit was under way.
            assert len(acknowledged) >= 1999
            await delivered(receiver, acknowledged)
        in_order = lanes(receiver.arrivals)
        assert all(jobs == sorted(jobs) for jobs in in_order.values())
        twice = sum(times - 1 for times in Counter(a.key for a in receiver.arrivals).values())
        # A claim or an outcome that had not reached the standby: what was in flight, and what was being written.
        assert twice <= 2 * 2 * SLOTS * 5


async def test_an_asynchronous_standby_forgets_what_it_had_not_heard_of(
    nest: Nest, tmp_path: Path, receiver: Receiver
) -> None:
    with pair(synchronous=False) as servers:
        async with running(nest, tmp_path, servers, receiver) as replicas:
            await produce(servers.dsn("relay"), ["before"])
            await delivered(receiver, ["before"])
            with psycopg.connect(servers.standby.dsn("relay")) as standby:
                while standby.execute("SELECT count(*) FROM outbox.job WHERE status = 'done'").fetchone() != (1,):
                    standby.rollback()
            await asyncio.to_thread(servers.cut)
            # Committed, acknowledged and delivered; the standby never hears of it.
            await produce(servers.dsn("relay"), ["forgotten"])
            await delivered(receiver, ["forgotten"])
            await fail_over(servers)
            for replica in replicas:
                await replica.event("database_back")
            await produce(servers.dsn("relay"), ["after"])
            await delivered(receiver, ["after"])
            with psycopg.connect(servers.standby.dsn("relay")) as promoted:
                kept = promoted.execute("SELECT idempotency_key FROM outbox.job ORDER BY id").fetchall()
        assert kept == [("before",), ("after",)]


async def test_a_job_whose_outcome_the_standby_had_not_heard_of_is_delivered_again_with_the_same_key(
    nest: Nest, tmp_path: Path, receiver: Receiver
) -> None:
    with pair(synchronous=False) as servers:
        holds = asyncio.Event()

        async with running(nest, tmp_path, servers, receiver) as replicas:

            async def hold(arrival: Arrival) -> web.StreamResponse:
                await holds.wait()
                return await accept(arrival)

            receiver.answer = hold
            await produce(servers.dsn("relay"), ["twice"])
            await receiver.wait_arrived(1)
            with psycopg.connect(servers.standby.dsn("relay"), autocommit=True) as standby:
                while standby.execute("SELECT count(*) FROM outbox.job WHERE status = 'running'").fetchone() != (1,):
                    pass
            await asyncio.to_thread(servers.cut)
            holds.set()
            with psycopg.connect(servers.primary.dsn("relay"), autocommit=True) as primary:
                while primary.execute("SELECT count(*) FROM outbox.job WHERE status = 'done'").fetchone() != (1,):
                    await asyncio.sleep(0.01)
            await fail_over(servers)
            for replica in replicas:
                await replica.event("database_back")
            # Once its lease has lapsed there.
            await receiver.wait_for(2)
        assert [arrival.key for arrival in receiver.arrivals] == ["twice", "twice"]
