"""What one destination may take: its slots, of which retries leave some, its rate, and its way back after trouble."""

import asyncio

import pytest
from aiohttp import web

from tests.conftest import Connection
from tests.receiver import Arrival, Receiver, accept, status
from tests.service.replica import Installation
from tests.service.table import until, value

INSERT = "INSERT INTO outbox.job (topic, destination, payload) SELECT 't', %s, '{}' FROM generate_series(1, %s)"
RETRIES = 3_000


async def refuse_retries(arrival: Arrival) -> web.StreamResponse:
    """Accept what comes for the first time, and nothing that was tried before."""
    return web.Response(status=204 if arrival.headers["Relay-Attempt"] == "1" else 400)


async def retry_all(connection: Connection) -> None:
    """Insert RETRIES jobs that failed once and are due again."""
    await connection.execute("SET session_replication_role = replica")
    await connection.execute(
        "INSERT INTO outbox.job (topic, destination, payload, run_at, attempts, claims)"
        " SELECT 't', 'shop', '{}', now() - interval '1 hour', 1, 1 FROM generate_series(1, %s)",
        (RETRIES,),
    )
    await connection.execute("SET session_replication_role = origin")


@pytest.mark.parametrize(
    "limit", [{"max_in_flight": 4}, {"max_in_flight": 1}, {"max_in_flight": 4, "rate_per_s": 40}], ids=str
)
async def test_thousands_of_due_retries_keep_a_new_job_waiting_for_a_few_deliveries_only(
    installation: Installation, connection: Connection, receiver: Receiver, limit: dict[str, int]
) -> None:
    """Fails when jobs are taken in the order in which they became due: the new ones are the last of all."""
    receiver.answer = refuse_retries
    endless = {"max_attempts": 1000, "base_s": 0.05, "cap_s": 0.05}
    installation.configure({"shop": {"url": receiver.url(), "retry": endless, **limit}})
    await retry_all(connection)
    await installation.start()
    await receiver.wait_for(20)
    for _ in range(5):
        new = await value(connection, INSERT + " RETURNING id", "shop", 1)
        before = len(receiver.arrivals)
        await until(connection, "SELECT status = 'done' FROM outbox.job WHERE id = %s", new)
        place = [each.sequence for each in receiver.arrivals[before - 1 :]].index(new)
        assert place < RETRIES / 20


async def test_a_receiver_that_comes_back_never_has_more_requests_at_once_than_it_answered_before_and_one(
    installation: Installation, connection: Connection, receiver: Receiver
) -> None:
    receiver.answer = status(503)
    soon = {"max_attempts": 1000, "base_s": 0.05, "cap_s": 0.05}
    installation.configure({"shop": {"url": receiver.url(), "max_in_flight": 32, "retry": soon}})
    await installation.start()
    await connection.execute(INSERT, ("shop", 300))
    await receiver.wait_for(10)
    # Nothing is under way while the breaker is open.
    await until(
        connection, "SELECT count(*) FILTER (WHERE status = 'running') = 0 AND max(attempts) > 0 FROM outbox.job"
    )
    open_now = answered = most = 0
    together: list[tuple[int, int]] = []

    async def count(_arrival: Arrival) -> web.StreamResponse:
        nonlocal open_now, answered, most
        open_now += 1
        most = max(most, open_now)
        together.append((open_now, answered))
        # What comes together is answered together.
        await asyncio.sleep(0.02)
        open_now -= 1
        answered += 1
        return web.Response(status=204)

    receiver.answer = count
    await until(connection, "SELECT count(*) = 300 FROM outbox.job WHERE status = 'done'")
    assert [each for each in together if each[0] > each[1] + 1] == []
    assert most == 32


async def test_a_destination_that_hangs_holds_its_own_slots_and_nobody_elses(
    installation: Installation, connection: Connection, receiver: Receiver
) -> None:
    never = asyncio.Event()

    async def hang(arrival: Arrival) -> web.StreamResponse:
        if arrival.path == "/hanging":
            await never.wait()
        return await accept(arrival)

    receiver.answer = hang
    others = [f"other-{number}" for number in range(19)]
    installation.configure(
        {name: {"url": receiver.url(f"/{name}"), "max_in_flight": 4} for name in ("hanging", *others)}
    )
    await installation.start()
    await connection.execute(INSERT, ("hanging", 200))
    await receiver.wait_arrived(4)
    for name in others:
        await connection.execute(INSERT, (name, 40))
    await until(connection, "SELECT count(*) = 19 * 40 FROM outbox.job WHERE status = 'done'")
    # Every one of the others is through, and of the one that hangs not a single attempt has ended.
    assert sum(arrival.path == "/hanging" for arrival in receiver.arrivals) == 4
    assert (
        await value(connection, "SELECT count(*) FROM outbox.job WHERE destination = 'hanging' AND attempts > 0") == 4
    )
    never.set()
    await until(connection, "SELECT count(*) = 200 FROM outbox.job WHERE destination = 'hanging' AND status = 'done'")


async def test_two_replicas_allow_twice_as_many_requests_at_once_as_one(
    installation: Installation, connection: Connection, receiver: Receiver
) -> None:
    go_on = asyncio.Event()

    async def wait(arrival: Arrival) -> web.StreamResponse:
        await go_on.wait()
        return await accept(arrival)

    receiver.answer = wait
    installation.configure({"shop": {"url": receiver.url(), "max_in_flight": 3}})
    await installation.start_two()
    await connection.execute(INSERT, ("shop", 50))
    await receiver.wait_arrived(6)
    # Both have claimed all they may: nothing else is under way that could arrive.
    assert await value(connection, "SELECT count(*) FROM outbox.job WHERE status = 'running'") == 6
    go_on.set()
    await until(connection, "SELECT count(*) = 50 FROM outbox.job WHERE status = 'done'")
