"""Order within an entity, independence between entities and between destinations."""

import asyncio
import random
from collections import Counter, defaultdict
from itertools import pairwise

from aiohttp import web

from tests.conftest import Connection
from tests.receiver import Arrival, Receiver
from tests.service.replica import Installation
from tests.service.table import counts, until, value

INSERT = (
    "INSERT INTO outbox.job (topic, destination, entity_key, payload)"
    " SELECT 't', %s, 'entity-' || n %% %s, to_json(n) FROM generate_series(1, %s) n"
)


def assert_ordered(arrivals: list[Arrival]) -> None:
    """Within each entity nothing overlaps, nothing comes after its successor, and a success is the last try."""
    lanes: dict[str, list[Arrival]] = defaultdict(list)
    for arrival in arrivals:
        lanes[arrival.headers["Relay-Entity-Key"]].append(arrival)
    for lane in lanes.values():
        for before, after in pairwise(lane):
            assert before.ended is not None
            assert before.ended < after.started
            assert before.sequence < after.sequence if before.status == 204 else before.sequence == after.sequence


async def test_two_replicas_send_the_jobs_of_an_entity_one_at_a_time_and_in_order_through_retries(
    installation: Installation, connection: Connection, receiver: Receiver
) -> None:
    rng = random.Random(7)

    async def sometimes_fail(arrival: Arrival) -> web.StreamResponse:
        # The receiver's work.
        await asyncio.sleep(rng.uniform(0, 0.01))
        fails = arrival.sequence % 9 == 0 and arrival.headers["Relay-Attempt"] == "1"
        return web.Response(status=500 if fails else 204)

    receiver.answer = sometimes_fail
    installation.configure({"shop": {"url": receiver.url(), "max_in_flight": 8}})
    replicas = await installation.start_two()
    await connection.execute(INSERT, ("shop", 24, 480))
    await receiver.wait_until(lambda arrivals: sum(arrival.status == 204 for arrival in arrivals) == 480, 60)
    assert_ordered(receiver.answered)
    assert Counter(arrival.status for arrival in receiver.answered) == {204: 480, 500: 480 // 9}
    await until(connection, "SELECT count(*) = 480 FROM outbox.job WHERE status = 'done'")
    assert await value(connection, "SELECT count(DISTINCT replica) FROM outbox.attempt") == 2
    assert [await replica.stop() for replica in replicas] == [0, 0]


async def test_different_entities_and_unordered_jobs_run_in_parallel(
    installation: Installation, connection: Connection, receiver: Receiver
) -> None:
    all_here = asyncio.Event()

    async def wait_for_the_others(_arrival: Arrival) -> web.StreamResponse:
        await all_here.wait()
        return web.Response(status=204)

    receiver.answer = wait_for_the_others
    installation.configure({"shop": {"url": receiver.url()}})
    await installation.start()
    await connection.execute(INSERT, ("shop", 10, 20))
    await connection.execute(
        "INSERT INTO outbox.job (topic, destination, payload) SELECT 't', 'shop', '0' FROM generate_series(1, 10)"
    )
    # The head of each of ten lanes, and ten that are in none.
    at_once = await receiver.wait_arrived(20)
    lanes = Counter(arrival.headers.get("Relay-Entity-Key", "none") for arrival in at_once)
    assert lanes == {"none": 10, **{f"entity-{n}": 1 for n in range(10)}}
    all_here.set()
    await receiver.wait_for(30)


async def test_a_destination_that_never_answers_delays_no_other(
    installation: Installation, connection: Connection, receiver: Receiver
) -> None:
    async def hang(arrival: Arrival) -> web.StreamResponse:
        if arrival.path == "/stuck":
            await asyncio.Event().wait()
        return web.Response(status=204)

    receiver.answer = hang
    installation.configure(
        {
            "stuck": {"url": receiver.url("/stuck"), "max_in_flight": 16},
            "fine": {"url": receiver.url("/fine"), "max_in_flight": 16},
        }
    )
    await installation.start()
    await connection.execute(INSERT, ("stuck", 200, 200))
    await receiver.wait_arrived(16)
    await connection.execute(INSERT, ("fine", 100, 300))
    arrivals = await receiver.wait_for(300)
    assert {arrival.path for arrival in arrivals} == {"/fine"}
    assert_ordered(arrivals)
    assert Counter(arrival.path for arrival in receiver.arrivals) == {"/fine": 300, "/stuck": 16}
    await until(connection, "SELECT count(*) = 300 FROM outbox.job WHERE status = 'done'")
    assert await counts(connection) == {"done": 300, "running": 16, "pending": 184}
