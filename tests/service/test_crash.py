"""A replica that is killed, and one that sleeps for longer than its leases."""

import asyncio
import signal
from collections import Counter

from aiohttp import web

from tests.conftest import Connection
from tests.receiver import Arrival, Receiver, accept
from tests.service.replica import Installation
from tests.service.table import rows, until, value

# The shortest lease that this deadline allows.
DEADLINE_S = 3
SHORT = {"lease_s": 8.5, "drain_s": 8.5, "termination_grace_s": 20, "poll_s": 0.5}
SLOTS = 8


async def never(_arrival: Arrival) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError("nobody sets it")


async def test_what_a_killed_replica_had_in_flight_is_delivered_by_the_other_after_the_lease(
    installation: Installation, connection: Connection, receiver: Receiver
) -> None:
    installation.configure(
        {"shop": {"url": receiver.url(), "max_in_flight": SLOTS}}, replica=SHORT, defaults={"deadline_s": DEADLINE_S}
    )
    receiver.answer = never
    killed = await installation.start("killed")
    await connection.execute(
        "INSERT INTO outbox.job (topic, destination, entity_key, payload)"
        " SELECT 't', 'shop', 'entity-' || n %% 10, '{}' FROM generate_series(1, 30) n",
        (),
    )
    in_flight = {arrival.sequence for arrival in await receiver.wait_arrived(SLOTS)}
    killed.signal(signal.SIGKILL)
    assert await killed.ended() == -signal.SIGKILL
    running = {row[0] for row in await rows(connection, "SELECT id FROM outbox.job WHERE status = 'running'")}
    assert running == in_flight

    receiver.answer = accept
    other = await installation.start("other")
    await until(connection, "SELECT count(*) = 30 FROM outbox.job WHERE status = 'done'")
    reclaimed = other.logged("job_reclaimed")
    assert {each["job"] for each in reclaimed} == running
    assert {each["locked_by"].rpartition("-")[0] for each in reclaimed} == {"killed"}
    # Sent twice at most, and only what was in flight. The attempt that nobody finished is charged.
    times = Counter(arrival.sequence for arrival in receiver.arrivals)
    assert {sequence for sequence, number in times.items() if number == 2} == in_flight
    assert set(times.values()) == {1, 2}
    charged = await rows(connection, "SELECT id FROM outbox.job WHERE attempts = 2 AND claims = 2")
    assert {row[0] for row in charged} == in_flight
    assert await rows(connection, "SELECT DISTINCT error_class FROM outbox.attempt") == [("lease_expired",)]
    keys = {(arrival.sequence, arrival.key, arrival.body) for arrival in receiver.arrivals}
    assert len(keys) == 30


async def test_a_replica_that_slept_through_its_lease_cannot_write_its_late_result(
    installation: Installation, connection: Connection, receiver: Receiver
) -> None:
    installation.configure({"shop": {"url": receiver.url()}}, replica=SHORT, defaults={"deadline_s": DEADLINE_S})
    first_answer, second_answer = asyncio.Event(), asyncio.Event()

    async def hold(arrival: Arrival) -> web.StreamResponse:
        if arrival.sequence == 1:
            await (first_answer if arrival.headers["Relay-Attempt"] == "1" else second_answer).wait()
        return web.Response(status=204)

    receiver.answer = hold
    sleeper = await installation.start("sleeper")
    await connection.execute(
        "INSERT INTO outbox.job (topic, destination, entity_key, payload)"
        " SELECT 't', 'shop', 'entity', '{}' FROM generate_series(1, 2)"
    )
    await receiver.wait_arrived(1)
    sleeper.signal(signal.SIGSTOP)
    first_answer.set()
    other = await installation.start("other")
    await other.event("job_reclaimed", job=1, status="pending")
    await receiver.wait_arrived(2)
    sleeper.signal(signal.SIGCONT)
    lost = await sleeper.event("lease_lost", job=1, claims=1)
    assert lost["noticed_by"] in {"settle", "renew"}

    # The lane still belongs to the second attempt: the successor did not start.
    assert {arrival.sequence for arrival in receiver.arrivals} == {1}
    assert await value(connection, "SELECT status <> 'done' FROM outbox.job WHERE id = 1")
    second_answer.set()
    await until(connection, "SELECT count(*) = 2 FROM outbox.job WHERE status = 'done'")
    [successor] = [arrival for arrival in receiver.arrivals if arrival.sequence == 2]
    assert successor is receiver.arrivals[-1]
