"""What a receiver answers is what the caller gets, within bounds."""

import asyncio
import gzip
import os

import pytest

from relay.model import Answer, ErrorClass, Fault
from relay.sender import Sender
from tests.sender.receiver import HEADERS, OK, UNSENDABLE, Connection, answering, receiving


async def answer(sender: Sender, *segments: bytes) -> Answer:
    async with receiving(answering(*segments)) as receiver:
        result = await sender.send(receiver.destination(), HEADERS, b"{}")
    assert isinstance(result, Answer), result
    return result


@pytest.mark.parametrize("status", [200, 202, 204, 304, 404, 410, 429, 503, 599])
async def test_a_status_is_an_answer(sender: Sender, status: int) -> None:
    assert (await answer(sender, b"HTTP/1.1 %d X\r\nConnection: close\r\n\r\n" % status)).status == status


async def test_header_names_are_lower_case(sender: Sender) -> None:
    result = await answer(sender, b"HTTP/1.1 429 X\r\nRetry-AFTER: 7\r\nContent-Length: 0\r\n\r\n")
    assert result.headers["retry-after"] == "7"


async def test_invalid_utf_8_in_a_header_is_no_fault(sender: Sender) -> None:
    result = await answer(sender, b"HTTP/1.1 200 OK\r\nX: \xff\xfe\r\nContent-Length: 0\r\n\r\n")
    assert result.headers["x"].encode("utf-8")


async def test_a_redirect_is_an_answer_and_not_followed(sender: Sender) -> None:
    async with (
        receiving(answering(OK)) as target,
        receiving(
            answering(b"HTTP/1.1 301 X\r\nLocation: http://127.0.0.1:%d/\r\nContent-Length: 0\r\n\r\n" % target.port)
        ) as receiver,
    ):
        result = await sender.send(receiver.destination(), HEADERS, b"{}")
    assert isinstance(result, Answer)
    assert (result.status, target.connections) == (301, [])


@pytest.mark.parametrize("interim", [b"100 Continue\r\n", b"103 Early Hints\r\nLink: </a>; rel=preload\r\n"])
@pytest.mark.parametrize("segments", [1, 2])
async def test_interim_answers_are_skipped(sender: Sender, interim: bytes, segments: int) -> None:
    parts = [b"HTTP/1.1 " + interim + b"\r\n", OK]
    assert (await answer(sender, *(parts if segments == 2 else [b"".join(parts)]))).status == 200


async def test_switching_protocols_is_an_answer_and_ends_the_connection(sender: Sender) -> None:
    async def handler(connection: Connection) -> None:
        await connection.request()
        await connection.write(b"HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
        await connection.until_lost()

    async with receiving(handler) as receiver:
        result = await sender.send(receiver.destination(), HEADERS, b"{}")
        assert isinstance(result, Answer)
        assert result.status == 101
        await asyncio.wait_for(receiver.connections[0].lost.wait(), 5)


async def test_http_1_0_without_keep_alive_ends_with_its_connection(sender: Sender) -> None:
    assert (await answer(sender, b"HTTP/1.0 200 OK\r\n\r\nfine", b", thanks")).body == b"fine, thanks"


@pytest.mark.parametrize("rest", [b"", b"too large"])
async def test_an_answer_before_the_body_was_read_counts_and_ends_the_connection(sender: Sender, rest: bytes) -> None:
    async def handler(connection: Connection) -> None:
        await connection.head()
        await connection.write(b"HTTP/1.1 413 X\r\nContent-Length: %d\r\n\r\n" % len(rest))
        await asyncio.sleep(0.01)  # or the kernel joins the segments
        await connection.write(rest)
        await answered.wait()
        await connection.until_lost()

    answered = asyncio.Event()
    async with receiving(handler, buffer_bytes=4096) as receiver:
        result = await sender.send(receiver.destination(), HEADERS, bytes(UNSENDABLE))
        answered.set()
        assert isinstance(result, Answer)
        assert (result.status, result.body) == (413, rest)
        await asyncio.wait_for(receiver.connections[0].lost.wait(), 5)
    assert receiver.connections[0].read < UNSENDABLE, "the rest of the body was sent for nobody"


async def test_a_gigabyte_is_not_read(sender: Sender) -> None:
    written = 0

    async def handler(connection: Connection) -> None:
        nonlocal written
        await connection.request()
        await connection.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n")
        try:
            while written < 2**30:
                await connection.write(bytes(2**16))
                written += 2**16
        finally:
            connection.lost.set()

    async with receiving(handler) as receiver:
        result = await sender.send(receiver.destination(), HEADERS, b"{}")
        await asyncio.wait_for(receiver.connections[0].lost.wait(), 5)
    assert isinstance(result, Answer)
    assert (result.status, result.body) == (200, bytes(4096))
    assert written < 2**25, "more than the kernel's buffers"


async def test_gzip_is_decoded(sender: Sender) -> None:
    body = gzip.compress(b"no such order")
    result = await answer(
        sender, b"HTTP/1.1 422 X\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body), body
    )
    assert result.body == b"no such order"


async def test_a_gzip_bomb_stays_small(sender: Sender) -> None:
    bomb = gzip.compress(bytes(2**22))
    assert len(bomb) > 4096, "or the prefix would be the whole"
    result = await answer(sender, b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + bomb)
    assert (result.status, result.body) == (200, bytes(4096))


async def test_bad_gzip_is_kept_as_it_came(sender: Sender) -> None:
    result = await answer(sender, b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\nnot gzip")
    assert (result.status, result.body) == (200, b"not gzip")


@pytest.mark.parametrize(
    "head", [b"Content-Length: 100\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n64\r\n"], ids=["length", "chunks"]
)
@pytest.mark.parametrize("how", ["closed", "reset"])
async def test_a_body_cut_after_the_head_is_still_the_answer(sender: Sender, head: bytes, how: str) -> None:
    async def handler(connection: Connection) -> None:
        await connection.request()
        await connection.write(b"HTTP/1.1 200 OK\r\n" + head + b"hal")
        await asyncio.sleep(0.01)  # or the reset overtakes the head
        if how == "reset":
            connection.reset()

    async with receiving(handler) as receiver:
        result = await sender.send(receiver.destination(), HEADERS, b"{}")
    assert isinstance(result, Answer)
    assert result.status == 200


@pytest.mark.parametrize("segments", [1, 2])
async def test_a_body_that_is_not_http_is_no_answer(sender: Sender, segments: int) -> None:
    parts = [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", b"nonsense\r\n"]
    async with receiving(answering(*(parts if segments == 2 else [b"".join(parts)]))) as receiver:
        result = await sender.send(receiver.destination(), HEADERS, b"{}")
    assert isinstance(result, Fault)
    assert result.error_class is ErrorClass.PROTOCOL


@pytest.mark.parametrize("size", [0, 1, 2**20])
async def test_the_body_arrives_byte_for_byte(sender: Sender, size: int) -> None:
    body = os.urandom(size)
    arrived: list[bytes] = []

    async def handler(connection: Connection) -> None:
        arrived.append((await connection.request())[1])
        await connection.write(OK)

    async with receiving(handler) as receiver:
        await sender.send(receiver.destination(), HEADERS, body)
    assert arrived == [body]


async def test_only_host_and_content_length_join_the_headers_given(sender: Sender) -> None:
    heads: list[bytes] = []

    async def handler(connection: Connection) -> None:
        heads.append((await connection.request())[0])
        await connection.write(OK)

    async with receiving(handler) as receiver:
        await sender.send(receiver.destination(url=f"http://127.0.0.1:{receiver.port}/a%2Fb?c=d"), HEADERS, b"{}")
    line, *headers = heads[0].decode().split("\r\n")
    assert line == "POST /a%2Fb?c=d HTTP/1.1"
    assert sorted(headers) == sorted(
        [
            f"Host: 127.0.0.1:{receiver.port}",
            "Content-Type: application/json",
            "User-Agent: outbox-relay/test",
            "Content-Length: 2",
            "",
            "",
        ]
    )


async def test_cookies_are_not_sent_back(sender: Sender) -> None:
    heads: list[bytes] = []

    async def handler(connection: Connection) -> None:
        for _ in range(2):
            heads.append((await connection.request())[0])
            await connection.write(b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n")

    async with receiving(handler) as receiver:
        for _ in range(2):
            await sender.send(receiver.destination(), HEADERS, b"{}")
    assert len(heads) == 2
    assert b"ookie" not in b"".join(heads)
