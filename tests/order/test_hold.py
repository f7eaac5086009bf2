"""A destination to which nothing is sent for a while: situation 22."""

from aiohttp import web

from tests.conftest import Connection
from tests.receiver import Arrival, Receiver
from tests.service.replica import Installation
from tests.service.table import rows, until

JOBS = 30
INSERT = (
    "INSERT INTO outbox.job (topic, destination, entity_key, payload)"
    " SELECT 't', d, 'e' || n, '{}' FROM generate_series(1, %s) n, unnest('{paused,broken,busy,fine}'::text[]) d"
)
SPENT = "SELECT destination, sum(attempts), count(*) FILTER (WHERE attempts > 0) FROM outbox.job GROUP BY 1"


async def answer(arrival: Arrival) -> web.StreamResponse:
    """As the path says."""
    if arrival.path == "/busy":
        return web.Response(status=429, headers={"Retry-After": "600"})
    return web.Response(status=500 if arrival.path == "/broken" else 204)


async def test_22_destination_paused_or_its_breaker_open_or_429_with_retry_after(
    installation: Installation, connection: Connection, receiver: Receiver
) -> None:
    """Fails when a pause, an open breaker or a Retry-After holds nothing back."""
    receiver.answer = answer
    # What failed does not come back within this test.
    installation.configure(
        {
            name: {"url": receiver.url(f"/{name}"), "max_in_flight": slots, "retry": {"base_s": 600, "cap_s": 600}}
            for name, slots in {"paused": 10, "broken": 10, "busy": 1, "fine": 10}.items()
        }
    )
    await connection.execute(
        "INSERT INTO outbox.destination (name, paused_at, paused_why) VALUES ('paused', now(), 'maintenance')"
    )
    await connection.execute(INSERT, (JOBS,))
    replica = await installation.start()
    await until(connection, "SELECT count(*) = %s FROM outbox.job WHERE status = 'done' AND attempts = 1", JOBS)
    await until(
        connection,
        "SELECT bool_and(status = 'pending') AND sum(attempts) >= 11"
        "  FROM outbox.job WHERE destination IN ('broken', 'busy')",
    )
    assert await replica.stop() == 0
    spent = {name: (total, charged) for name, total, charged in await rows(connection, SPENT)}
    sent = {name: sum(arrival.path == f"/{name}" for arrival in receiver.arrivals) for name in spent}
    # Only what was sent is charged, once for each call.
    assert spent == {name: (number, number) for name, number in sent.items()}
    assert (sent["paused"], sent["busy"], sent["fine"]) == (0, 1, JOBS)
    # Ten failures in a row open the breaker; a few more may be on their way.
    assert 10 <= sent["broken"] < JOBS
