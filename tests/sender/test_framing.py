"""Where an answer ends, and whether its connection may be used again: RFC 9112, sections 6 and 9."""

import pytest

from relay.model import Answer, ErrorClass, Fault
from relay.sender import Sender
from tests.sender.receiver import HEADERS, OK, Connection, Handler, receiving


def repeating(answer: bytes) -> Handler:
    """The same answer to each request of a connection, whatever it says about keeping it."""

    async def handler(connection: Connection) -> None:
        while True:
            await connection.request()
            await connection.write(answer)

    return handler


async def connections(sender: Sender, answer: bytes) -> tuple[list[tuple[int, bytes]], int]:
    """Send three times; (status, body) of each answer, and how many connections that took."""
    async with receiving(repeating(answer)) as receiver:
        results = [await sender.send(receiver.destination(), HEADERS, b"{}") for _ in range(3)]
    assert all(isinstance(result, Answer) for result in results), results
    return [(result.status, result.body) for result in results if isinstance(result, Answer)], len(receiver.connections)


KEPT = {
    "length": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n",
    "chunk extensions": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nok\r\n0\r\n\r\n",
    "blanks after the size": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2  \r\nok\r\n0\r\n\r\n",
    "trailers": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX: y\r\n\r\n",
    "bare LF": b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
    "folded header": b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 2\r\n\r\nok",
    "1.0 that is kept": b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok",
    "interim first": b"HTTP/1.1 102 X\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
}


@pytest.mark.parametrize("answer", KEPT.values(), ids=KEPT.keys())
async def test_an_answer_that_says_where_it_ends_keeps_its_connection(sender: Sender, answer: bytes) -> None:
    assert await connections(sender, answer) == ([(200, b"ok")] * 3, 1)


@pytest.mark.parametrize(
    ("status", "length"),
    [
        (204, b""), (204, b"Content-Length: 0\r\n"),
        (304, b""), (304, b"Content-Length: 0\r\n"), (304, b"Content-Length: 5\r\n"),
    ],
)  # fmt: skip
async def test_an_answer_that_has_no_body_by_its_status_keeps_its_connection(
    sender: Sender, status: int, length: bytes
) -> None:
    assert await connections(sender, b"HTTP/1.1 %d X\r\n%s\r\n" % (status, length)) == ([(status, b"")] * 3, 1)


async def test_a_204_that_announces_a_body_ends_its_connection(sender: Sender) -> None:
    # RFC 9110, section 8.6 forbids it; a body that comes all the same would be read as the next answer.
    assert await connections(sender, b"HTTP/1.1 204 X\r\nContent-Length: 5\r\n\r\n") == ([(204, b"")] * 3, 3)


ENDING = {
    "close": b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
    "1.0": b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
}


@pytest.mark.parametrize("answer", ENDING.values(), ids=ENDING.keys())
async def test_an_answer_that_ends_its_connection_is_the_last_one_on_it(sender: Sender, answer: bytes) -> None:
    assert await connections(sender, answer) == ([(200, b"ok")] * 3, 3)


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n"])
async def test_an_answer_without_a_length_ends_with_its_connection(sender: Sender, head: bytes) -> None:
    async def handler(connection: Connection) -> None:
        await connection.request()
        await connection.write(head + b"fine")

    async with receiving(handler) as receiver:
        for _ in range(2):
            result = await sender.send(receiver.destination(), HEADERS, b"{}")
            assert isinstance(result, Answer)
            assert result.body == b"fine"
    assert len(receiver.connections) == 2


async def test_a_trailer_is_no_header(sender: Sender) -> None:
    answer = b"HTTP/1.1 429 X\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nRetry-After: 9\r\n\r\n"
    async with receiving(repeating(answer)) as receiver:
        result = await sender.send(receiver.destination(), HEADERS, b"{}")
    assert isinstance(result, Answer)
    assert "retry-after" not in result.headers


def endless(start: bytes, again: bytes) -> Handler:
    async def handler(connection: Connection) -> None:
        await connection.request()
        await connection.write(start)
        while not connection.writer.transport.is_closing():
            await connection.write(again)

    return handler


@pytest.mark.parametrize("again", [b"X: y\r\n", b"x" * 6], ids=["trailers", "one trailer"])
async def test_a_body_that_is_only_framing_is_given_up_and_still_the_answer(sender: Sender, again: bytes) -> None:
    start = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX: "
    async with receiving(endless(start, again * 100)) as receiver:
        result = await sender.send(receiver.destination(deadline_s=60.0), HEADERS, b"{}")
    assert isinstance(result, Answer)
    assert (result.status, result.body) == (200, b"ok")


@pytest.mark.parametrize(
    ("start", "again"),
    [
        (b"", b"HTTP/1.1 103 X\r\nLink: a\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"),
        (b"HTTP/1.1 200 OK\r\nX: ", b"y"),
    ],
    ids=["interim answers", "headers", "one header"],
)
async def test_a_head_without_end_is_given_up_long_before_the_deadline(
    sender: Sender, start: bytes, again: bytes
) -> None:
    async with receiving(endless(start, again * 100)) as receiver:
        result = await sender.send(receiver.destination(deadline_s=60.0), HEADERS, b"{}")
    assert isinstance(result, Fault)
    assert result.error_class is ErrorClass.PROTOCOL


async def test_a_page_of_html_that_came_whole_keeps_its_connection(sender: Sender) -> None:
    page = b"x" * 6000
    async with receiving(repeating(b"HTTP/1.1 500 X\r\nContent-Length: 6000\r\n\r\n" + page)) as receiver:
        for _ in range(3):
            result = await sender.send(receiver.destination(), HEADERS, b"{}")
            assert isinstance(result, Answer)
            assert result.body == page[:4096]
        assert isinstance(await sender.send(receiver.destination(), HEADERS, b"{}"), Answer)
    assert len(receiver.connections) == 1


async def test_an_answer_that_stands_among_unasked_bytes_is_the_last_one_of_its_connection(sender: Sender) -> None:
    async with receiving(repeating(OK + OK[:10])) as receiver:
        for _ in range(3):
            result = await sender.send(receiver.destination(), HEADERS, b"{}")
            assert isinstance(result, Answer)
            assert (result.status, result.body) == (200, b"ok")
    assert len(receiver.connections) == 3
