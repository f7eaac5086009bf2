"""What holds a whole destination back, and charges no job for it: 410, Retry-After, an open breaker."""

from aiohttp import web

from tests.conftest import Connection
from tests.receiver import Arrival, Receiver, accept, status
from tests.service.replica import Installation
from tests.service.table import counts, rows, until, value

INSERT = "INSERT INTO outbox.job (topic, destination, payload) SELECT 't', %s, '{}' FROM generate_series(1, %s)"


async def test_a_410_pauses_the_destination_for_good_and_resume_goes_on_without_an_attempt_charged(
    installation: Installation, connection: Connection, receiver: Receiver
) -> None:
    async def gone(arrival: Arrival) -> web.StreamResponse:
        return web.Response(status=410 if arrival.path == "/gone" else 204)

    receiver.answer = gone
    installation.configure(
        {
            "gone": {"url": receiver.url("/gone"), "max_in_flight": 4},
            "fine": {"url": receiver.url("/fine")},
        }
    )
    replica = await installation.start()
    await connection.execute(INSERT, ("gone", 20))
    await until(connection, "SELECT count(*) = 1 FROM outbox.destination WHERE name = 'gone' AND paused_at IS NOT NULL")
    assert await replica.stop() == 0
    assert await counts(connection) == {"pending": 20}
    sent = len(receiver.arrivals)
    assert sent <= 4

    # A new replica knows it from the database.
    await installation.start()
    await connection.execute(INSERT, ("fine", 1))
    await receiver.wait_for(sent + 1)
    assert receiver.arrivals[-1].path == "/fine"
    assert len(receiver.arrivals) == sent + 1

    receiver.answer = accept
    resumed = await installation.command("resume", "gone")
    assert (resumed.code, resumed.error) == (0, "")
    await until(connection, "SELECT count(*) = 21 FROM outbox.job WHERE status = 'done'")
    assert await rows(connection, "SELECT DISTINCT attempts FROM outbox.job") == [(1,)]
    assert {arrival.headers["Relay-Attempt"] for arrival in receiver.arrivals} == {"1"}


async def test_a_retry_after_holds_the_destination_and_charges_only_the_job_that_was_told(
    installation: Installation, connection: Connection, receiver: Receiver
) -> None:
    async def busy_at_first(_arrival: Arrival) -> web.StreamResponse:
        if len(receiver.arrivals) == 1:
            return web.Response(status=429, headers={"Retry-After": "2"})
        return web.Response(status=204)

    receiver.answer = busy_at_first
    installation.configure({"shop": {"url": receiver.url(), "max_in_flight": 1}})
    await installation.start()
    await connection.execute(INSERT, ("shop", 10))
    first, *others = await receiver.wait_for(11)
    assert first.ended is not None
    assert min(arrival.started for arrival in others) - first.ended >= 2.0
    await until(connection, "SELECT count(*) = 10 FROM outbox.job WHERE status = 'done'")
    charged = await rows(connection, "SELECT id, attempts FROM outbox.job ORDER BY attempts DESC, id LIMIT 2")
    assert charged[0] == (first.sequence, 2)
    assert charged[1][1] == 1


async def test_while_the_breaker_is_open_waiting_jobs_lose_no_attempt(
    installation: Installation, connection: Connection, receiver: Receiver
) -> None:
    receiver.answer = status(500)
    # What failed does not come back within this test.
    installation.configure(
        {"shop": {"url": receiver.url(), "max_in_flight": 10, "retry": {"base_s": 600, "cap_s": 600}}}
    )
    await installation.start()
    await connection.execute(INSERT, ("shop", 200))
    await receiver.wait_for(10)
    await until(connection, "SELECT count(*) = 0 FROM outbox.job WHERE status = 'running'")
    failed = await value(connection, "SELECT count(*) FROM outbox.job WHERE attempts > 0")
    # Ten in a row open it, a few more were on their way, and a probe now and then costs a job an attempt.
    assert 10 <= failed < 40

    receiver.answer = accept
    await until(
        connection,
        "SELECT count(*) FILTER (WHERE status = 'done') + count(*) FILTER (WHERE run_at > now()) = 200 FROM outbox.job",
    )
    refused = {arrival.sequence for arrival in receiver.answered if arrival.status == 500}
    assert len(receiver.arrivals) == 200
    assert await counts(connection) == {"pending": len(refused), "done": 200 - len(refused)}
    assert await rows(connection, "SELECT DISTINCT attempts FROM outbox.job") == [(1,)]
    assert len(refused) < 40
