"""What a real replica keeps, as it is configured."""

from aiohttp import web

from tests.cli.conftest import Connection, rows, until
from tests.receiver import Arrival, Receiver
from tests.service.replica import Installation

INSERT = "INSERT INTO outbox.job (topic, destination, entity_key, payload) VALUES ('t', 'shop', %s, %s)"


async def empty(connection: Connection) -> bool:
    """Whether no job is left, of whatever status."""
    return not await rows(connection, "SELECT FROM outbox.job")


async def test_with_no_time_to_keep_them_jobs_are_gone_with_their_delivery_and_lanes_stay_in_order(
    installation: Installation, connection: Connection, receiver: Receiver
) -> None:
    # The sweeper does not come round in this test: it is the settle that deletes.
    installation.configure({"shop": {"url": receiver.url("/")}}, retention={"done_s": 0, "sweep_s": 3600})
    await installation.start()
    for number in range(30):
        await connection.execute(INSERT, (f"order-{number % 3}", str(number)))
    await receiver.wait_for(30)
    await until(lambda: empty(connection))
    for lane in range(3):
        got = [int(arrival.body) for arrival in receiver.arrivals if int(arrival.body) % 3 == lane]
        assert got == list(range(lane, 30, 3))


async def test_dead_letters_past_their_age_are_deleted_told_of_and_their_entity_goes_on(
    installation: Installation, connection: Connection, receiver: Receiver
) -> None:
    async def refuse(arrival: Arrival) -> web.StreamResponse:
        return web.Response(status=400 if arrival.body == b"1" else 204)

    receiver.answer = refuse
    shop = {"url": receiver.url("/"), "permanent_statuses": [400]}
    installation.configure({"shop": shop}, retention={"dead_s": 0.5, "sweep_s": 0.2})
    for number in (1, 2, 3):
        await connection.execute(INSERT, ("order-1", str(number)))
    replica = await installation.start()
    told = await replica.event("dead_letters_deleted")
    assert (told["destination"], told["jobs"]) == ("shop", 1)
    await receiver.wait_for(3)
    assert [arrival.body for arrival in receiver.arrivals] == [b"1", b"2", b"3"]
    await until(lambda: delivered(connection))
    assert await rows(connection, "SELECT error_class, status FROM outbox.attempt") == [("status", 400)]


async def delivered(connection: Connection) -> bool:
    """Whether the two others are done."""
    return await rows(connection, "SELECT status, count(*) FROM outbox.job GROUP BY 1") == [("done", 2)]
