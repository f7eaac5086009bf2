"""Receivers that accept, or do not, and then do something other than answer."""

from tests.receivers.street import Street, never
from tests.sender.receiver import OK, Connection, answering, keep_answering


async def test_one_that_accepts_and_never_answers_ends_at_the_deadline_and_its_neighbours_never_waited(
    street: Street,
) -> None:
    async def handler(connection: Connection) -> None:
        await connection.request()
        await connection.until_lost()

    house = street.house()
    fate = await street.visit(house, handler)
    assert fate.failed == [("deadline", None)]
    assert await street.good_came_first(fate)
    await house.connections[0].lost.wait()


async def test_one_that_never_reads_ends_at_the_deadline_and_its_neighbours_never_waited(street: Street) -> None:
    async def handler(connection: Connection) -> None:
        connection.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await never()

    fate = await street.visit(street.house(), handler, body=bytes(2**20), content_type="image/x-raw")
    assert fate.failed == [("deadline", None)]
    assert await street.good_came_first(fate)


async def test_one_that_closes_before_the_answer_is_a_read_fault(street: Street) -> None:
    fate = await street.visit(street.house(), answering())
    assert fate.failed == [("read", None)]


async def test_one_that_resets_before_the_answer_is_a_read_fault(street: Street) -> None:
    async def handler(connection: Connection) -> None:
        await connection.request()
        connection.reset()

    fate = await street.visit(street.house(), handler)
    assert fate.failed == [("read", None)]


async def test_one_that_resets_in_the_middle_of_the_request_is_a_write_or_read_fault(street: Street) -> None:
    async def handler(connection: Connection) -> None:
        await connection.head()
        connection.reset()

    fate = await street.visit(street.house(), handler, body=bytes(2**20), content_type="image/x-raw")
    assert fate.failed in ([("write", None)], [("read", None)])


async def test_a_reset_of_the_second_request_on_a_kept_connection_costs_no_attempt(street: Street) -> None:
    async def handler(connection: Connection) -> None:
        await connection.request()
        await connection.write(OK)
        await connection.request()
        if connection.number > 1:
            await connection.write(OK)
        connection.reset()

    house = street.house()
    for _ in range(2):
        fate = await street.visit(house, handler)
        assert (fate.status, fate.attempts, fate.failed) == ("done", 1, [])
    assert len(house.connections) == 2


async def test_a_receiver_that_allows_two_connections_is_never_asked_for_a_third_where_in_flight_is_two(
    street: Street,
) -> None:
    opened: set[int] = set()
    most = 0

    async def handler(connection: Connection) -> None:
        nonlocal most
        opened.add(connection.number)
        most = max(most, len(opened))
        try:
            await keep_answering(connection)
        finally:
            opened.discard(connection.number)

    house = street.house("two")
    house.handler = handler
    for job in await street.job(house, count=50):
        assert (await street.fate(job)).failed == []
    assert most <= 2


async def test_a_receiver_that_resets_every_third_connection_still_gets_every_job(street: Street) -> None:
    opened: set[int] = set()
    refused = 0

    async def handler(connection: Connection) -> None:
        nonlocal refused
        if len(opened) >= 2:
            refused += 1
            connection.reset()
            return
        opened.add(connection.number)
        try:
            await connection.request()
            await connection.write(OK)
        finally:
            opened.discard(connection.number)

    house = street.house()
    house.handler = handler
    for job in await street.job(house, count=20, max_attempts=1000):
        fate = await street.fate(job)
        assert fate.status == "done"
        assert {kind for kind, _ in fate.failed} <= {"connect", "read", "write"}
    assert refused > 0


async def test_a_port_that_refuses_is_a_connect_fault(street: Street) -> None:
    [job] = await street.job(street.house("closed"), max_attempts=2)
    fate = await street.fate(job)
    assert (fate.status, fate.failed) == ("dead", [("connect", None)] * 2)
    assert (await street.detail(job)).endswith("Connection refused")


async def test_a_port_that_is_filtered_is_a_connect_fault_and_its_neighbours_never_waited(street: Street) -> None:
    [job] = await street.job(street.house("filtered"))
    fate = await street.fate(job)
    assert fate.failed == [("connect", None)]
    assert await street.good_came_first(fate)


async def test_bytes_before_any_request_are_no_answer(street: Street) -> None:
    async def handler(connection: Connection) -> None:
        await connection.write(b"220 mail.example ESMTP\r\n")
        await connection.until_lost()

    fate = await street.visit(street.house(), handler)
    assert fate.failed in ([("protocol", None)], [("read", None)])
