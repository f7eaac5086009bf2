"""Receivers whose answers are too much, too little, or no HTTP."""

import gzip

import pytest

from tests.receivers.street import Street
from tests.sender.receiver import Connection, answering
from tests.service.table import value

DONE = b"HTTP/1.1 200 OK\r\n"
NO_BODY = b"Content-Length: 0\r\n\r\n"
GIGABYTE = 2**30


async def test_a_gigabyte_of_body_is_done_without_being_read(street: Street) -> None:
    written = 0

    async def handler(connection: Connection) -> None:
        nonlocal written
        await connection.request()
        await connection.write(DONE + b"Content-Length: %d\r\n\r\n" % GIGABYTE)
        while written < GIGABYTE:
            await connection.write(bytes(2**16))
            written += 2**16

    fate = await street.visit(street.house(), handler)
    assert (fate.status, fate.failed) == ("done", [])
    assert written < 2**25, "more than the kernel's buffers"


async def test_of_a_gzip_bomb_only_the_beginning_is_kept(street: Street) -> None:
    bomb = gzip.compress(bytes(2**26))
    head = b"HTTP/1.1 500 X\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb)
    fate = await street.visit(street.house(), answering(head + bomb))
    assert fate.failed == [("status", 500)]
    kept = "SELECT octet_length(response) FROM outbox.attempt WHERE job_id = %s"
    assert await value(street.database, kept, fate.job) == 4096


async def test_bad_gzip_is_kept_as_it_came(street: Street) -> None:
    head = b"HTTP/1.1 500 X\r\nContent-Encoding: gzip\r\nContent-Length: 8\r\n\r\n"
    fate = await street.visit(street.house(), answering(head + b"not gzip"))
    assert fate.failed == [("status", 500)]
    kept = "SELECT response FROM outbox.attempt WHERE job_id = %s"
    assert await value(street.database, kept, fate.job) == b"not gzip"


@pytest.mark.parametrize("size", [b"zz", b"-5", b"fffffffffffffffff", b"5\r\nhello\r\nnonsense"])
async def test_a_bad_chunk_size_is_a_protocol_fault(street: Street, size: bytes) -> None:
    answer = DONE + b"Transfer-Encoding: chunked\r\n\r\n" + size + b"\r\nhello\r\n"
    fate = await street.visit(street.house(), answering(answer))
    assert fate.failed == [("protocol", None)]


@pytest.mark.parametrize(
    "head",
    [
        b"X: " + b"a" * 2**20,
        b"X: a\r\n" * 50_000 + b"X: a",
        b"Content-Length: 1\r\nContent-Length: 2",
        b"Content-Length: -1",
        b"Content-Length: 99999999999999999999999",
    ],
    ids=["1 MB in one header", "50,000 headers", "two lengths", "a negative length", "a length of 23 digits"],
)
async def test_a_head_that_is_too_large_or_nonsense_is_a_protocol_fault(street: Street, head: bytes) -> None:
    fate = await street.visit(street.house(), answering(DONE + head + b"\r\n\r\nab"))
    assert fate.failed == [("protocol", None)]


async def test_what_is_not_http_at_all_is_a_protocol_fault(street: Street) -> None:
    fate = await street.visit(street.house(), answering(b"SSH-2.0-OpenSSH_9.2p1\r\n"))
    assert fate.failed == [("protocol", None)]


@pytest.mark.parametrize("status", [200, 500])
async def test_invalid_utf_8_in_a_header_changes_nothing(street: Street, status: int) -> None:
    answer = b"HTTP/1.1 %d \xff\r\nX: \xff\xfe\xc3\r\nRetry-After: \xb2\r\n%s" % (status, NO_BODY)
    fate = await street.visit(street.house(), answering(answer))
    assert fate.failed == ([] if status == 200 else [("status", 500)])


async def test_a_body_shorter_than_its_content_length_is_still_the_answer(street: Street) -> None:
    fate = await street.visit(street.house(), answering(DONE + b"Content-Length: 100\r\n\r\nhal"))
    assert (fate.status, fate.failed) == ("done", [])


async def test_a_body_longer_than_its_content_length_spoils_no_later_answer(street: Street) -> None:
    async def handler(connection: Connection) -> None:
        await connection.request()
        await connection.write(DONE + b"Content-Length: 1\r\n\r\nfHTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n")
        await connection.until_lost()

    house = street.house()
    for _ in range(2):
        fate = await street.visit(house, handler)
        assert (fate.status, fate.failed) == ("done", [])


async def test_a_null_byte_in_the_answer_is_kept(street: Street) -> None:
    fate = await street.visit(street.house(), answering(b"HTTP/1.1 500 X\r\nContent-Length: 3\r\n\r\na\0\xff"))
    kept = "SELECT response FROM outbox.attempt WHERE job_id = %s"
    assert await value(street.database, kept, fate.job) == b"a\0\xff"
