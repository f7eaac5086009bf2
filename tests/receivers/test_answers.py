"""Receivers that answer, each in its way, or start to."""

import asyncio

import pytest

from tests.receivers.street import Street, never
from tests.sender.receiver import OK, Connection, answering

DONE = b"HTTP/1.1 200 OK\r\n"
NO_BODY = b"Content-Length: 0\r\n\r\n"


@pytest.mark.parametrize("status", [200, 202, 204])
async def test_any_2xx_is_done_at_the_first_attempt(street: Street, status: int) -> None:
    fate = await street.visit(street.house(), answering(b"HTTP/1.1 %d X\r\nConnection: close\r\n\r\n" % status))
    assert (fate.status, fate.attempts, fate.failed) == ("done", 1, [])


@pytest.mark.parametrize("status", [304, 404, 408, 425, 500, 599])
async def test_any_other_status_is_a_failed_attempt_that_keeps_the_number(street: Street, status: int) -> None:
    fate = await street.visit(street.house(), answering(b"HTTP/1.1 %d X\r\nConnection: close\r\n\r\n" % status))
    assert (fate.status, fate.attempts, fate.failed) == ("dead", 1, [("status", status)])


@pytest.mark.parametrize("status", [301, 307])
async def test_a_redirect_to_another_host_is_not_followed_and_its_host_is_named(street: Street, status: int) -> None:
    house, other = street.house(), street.house()
    elsewhere = b"Location: http://localhost:%d/stolen?token=1\r\n" % other.receiver.port
    fate = await street.visit(house, answering(b"HTTP/1.1 %d X\r\n%s%s" % (status, elsewhere, NO_BODY)))
    assert fate.failed == [("status", status)]
    assert (await street.detail(fate.job)).endswith("not followed to host localhost")
    assert other.connections == []


@pytest.mark.parametrize("interim", [b"100 Continue\r\n", b"103 Early Hints\r\nLink: </a>; rel=preload\r\n"])
async def test_an_interim_answer_is_skipped(street: Street, interim: bytes) -> None:
    fate = await street.visit(street.house(), answering(b"HTTP/1.1 " + interim + b"\r\n", OK))
    assert (fate.status, fate.failed) == ("done", [])


async def test_http_1_0_without_keep_alive_is_done_with_a_connection_for_each_job(street: Street) -> None:
    house = street.house()
    for _ in range(3):
        fate = await street.visit(house, answering(b"HTTP/1.0 200 OK\r\n\r\nfine"))
        assert (fate.status, fate.failed) == ("done", [])
    assert len(house.connections) == 3


@pytest.mark.parametrize("status", [200, 413])
async def test_an_answer_before_the_body_was_read_counts(street: Street, status: int) -> None:
    async def handler(connection: Connection) -> None:
        await connection.head()
        await connection.write(b"HTTP/1.1 %d X\r\nConnection: close\r\nContent-Length: 0\r\n\r\n" % status)
        await connection.until_lost()

    fate = await street.visit(street.house(), handler, body=bytes(2**20), content_type="image/x-raw")
    assert (fate.status, fate.failed) == (("done", []) if status == 200 else ("dead", [("status", 413)]))


@pytest.mark.parametrize(
    "start",
    [b"HTTP/1.1 200 OK\r\nX: ", DONE + b"Content-Length: 1000000\r\n\r\n"],
    ids=["head", "body"],
)
async def test_a_slow_drip_ends_at_the_deadline_and_its_neighbours_never_waited(street: Street, start: bytes) -> None:
    async def handler(connection: Connection) -> None:
        await connection.request()
        await connection.write(start)
        while True:
            await connection.write(b"x")
            await asyncio.sleep(0.01)

    fate = await street.visit(street.house(), handler)
    assert fate.failed == [("deadline", None)]
    assert await street.good_came_first(fate)


async def test_forty_receivers_that_never_answer_keep_no_neighbour_waiting(street: Street) -> None:
    """As many at once as there are slots of the first house, and one of another."""
    busy, other = street.house(), street.house()

    async def hang(connection: Connection) -> None:
        await connection.request()
        await never()

    busy.handler = other.handler = hang
    jobs = [*await street.job(busy, count=40), *await street.job(other)]
    for job in jobs:
        fate = await street.fate(job)
        assert fate.failed == [("deadline", None)]
        assert await street.good_came_first(fate)
