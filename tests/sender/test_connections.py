"""Connections are kept, replaced when stale, and never leaked."""

import asyncio
import gc
import os
import sys

import pytest

from relay.model import Answer, ErrorClass, Fault, Result
from relay.sender import Sender
from tests.sender.receiver import HEADERS, OK, Connection, Receiver, keep_answering, receiving


async def send(sender: Sender, receiver: Receiver, **settings: object) -> Result:
    return await sender.send(receiver.destination(**settings), HEADERS, b"{}")


async def test_two_hundred_sends_in_a_row_use_one_connection(sender: Sender) -> None:
    async with receiving(keep_answering) as receiver:
        for _ in range(200):
            assert isinstance(await send(sender, receiver), Answer)
    assert len(receiver.connections) == 1


async def test_an_answer_in_many_segments_keeps_its_connection(sender: Sender) -> None:
    async def handler(connection: Connection) -> None:
        while True:
            await connection.request()
            for segment in (OK[:-2], OK[-2:-1], OK[-1:]):
                await connection.write(segment)
                await asyncio.sleep(0.005)  # or the kernel joins the segments

    async with receiving(handler) as receiver:
        for _ in range(5):
            result = await send(sender, receiver)
            assert isinstance(result, Answer)
            assert result.body == b"ok"
    assert len(receiver.connections) == 1


@pytest.mark.parametrize("how", ["closed", "reset"])
async def test_a_kept_connection_that_drops_is_replaced_at_once(sender: Sender, how: str) -> None:
    async def handler(connection: Connection) -> None:
        await connection.request()
        await connection.write(OK)
        await connection.request()
        if connection.number > 1:
            await connection.write(OK)
        elif how == "reset":
            connection.reset()

    async with receiving(handler) as receiver:
        assert isinstance(await send(sender, receiver), Answer)
        assert isinstance(await send(sender, receiver), Answer)
    assert len(receiver.connections) == 2


async def test_a_stale_connection_is_not_replaced_by_another_stale_one(sender: Sender) -> None:
    async def handler(connection: Connection) -> None:
        await connection.request()
        if connection.number == 4:
            all_in.set()
        await all_in.wait()
        await connection.write(OK)
        if connection.number <= 4:
            await connection.request()

    all_in = asyncio.Event()
    async with receiving(handler) as receiver:
        await asyncio.gather(*(send(sender, receiver) for _ in range(4)))
        assert isinstance(await send(sender, receiver), Answer)
    assert len(receiver.connections) == 5


async def test_a_connection_reset_while_idle_leaves_no_complaint(
    sender: Sender, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(connection: Connection) -> None:
        await connection.request()
        await connection.write(OK[:-1])
        await asyncio.sleep(0.01)  # or the kernel joins the segments
        await connection.write(OK[-1:])
        await answered.wait()
        connection.reset()

    answered = asyncio.Event()
    async with receiving(handler) as receiver:
        for _ in range(2):
            assert isinstance(await send(sender, receiver), Answer)
            answered.set()
    gc.collect()
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


async def test_a_connection_closed_while_idle_is_not_noticed(sender: Sender) -> None:
    async def handler(connection: Connection) -> None:
        await connection.request()
        await connection.write(OK)

    async with receiving(handler) as receiver:
        for _ in range(50):
            assert isinstance(await send(sender, receiver), Answer)
    assert len(receiver.connections) == 50


async def test_only_one_more_connection_is_tried(sender: Sender) -> None:
    async def handler(connection: Connection) -> None:
        if connection.number == 1:
            await connection.request()
            await connection.write(OK)
        await connection.request()
        connection.reset()

    async with receiving(handler) as receiver:
        assert isinstance(await send(sender, receiver), Answer)
        result = await send(sender, receiver)
    assert isinstance(result, Fault)
    assert result.error_class is ErrorClass.READ
    assert len(receiver.connections) == 2


async def test_a_fresh_connection_that_drops_is_not_replaced(sender: Sender) -> None:
    async def handler(connection: Connection) -> None:
        await connection.request()
        connection.reset()

    async with receiving(handler) as receiver:
        assert isinstance(await send(sender, receiver), Fault)
    assert len(receiver.connections) == 1


EARLY_HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n"


@pytest.mark.parametrize("begun", [b"H", b"HTTP/1.1 200 OK\r\nConte", EARLY_HINTS], ids=["byte", "half", "103"])
@pytest.mark.parametrize("how", ["closed", "reset"])
async def test_a_kept_connection_that_drops_within_an_answer_is_not_replaced(
    sender: Sender, begun: bytes, how: str
) -> None:
    async def handler(connection: Connection) -> None:
        await connection.request()
        await connection.write(OK)
        await connection.request()
        await connection.write(begun)
        await asyncio.sleep(0.01)  # or the reset overtakes what was written
        if how == "reset":
            connection.reset()

    async with receiving(handler) as receiver:
        assert isinstance(await send(sender, receiver), Answer)
        result = await send(sender, receiver)
    assert isinstance(result, Fault)
    assert result.error_class is ErrorClass.READ
    assert len(receiver.connections) == 1


async def test_a_kept_connection_that_drops_in_the_middle_of_a_long_request_is_replaced(sender: Sender) -> None:
    async def handler(connection: Connection) -> None:
        if connection.number == 1:
            await connection.request()
            await connection.write(OK)
            await connection.head()
            connection.reset()
        else:
            arrived.append((await connection.request())[1])
            await connection.write(OK)

    arrived: list[bytes] = []
    body = os.urandom(2**20)
    async with receiving(handler, buffer_bytes=4096) as receiver:
        assert isinstance(await send(sender, receiver), Answer)
        assert isinstance(await sender.send(receiver.destination(), HEADERS, body), Answer)
    assert arrived == [body]


async def test_the_second_connection_gets_no_second_deadline(sender: Sender) -> None:
    async def handler(connection: Connection) -> None:
        if connection.number == 1:
            await connection.request()
            await connection.write(OK)
            await connection.request()
        else:
            await connection.until_lost()

    async with receiving(handler) as receiver:
        assert isinstance(await send(sender, receiver), Answer)
        result = await send(sender, receiver, deadline_s=1.0)
    assert isinstance(result, Fault)
    assert result.error_class is ErrorClass.DEADLINE


async def test_bytes_nobody_asked_for_do_not_become_the_next_answer(sender: Sender) -> None:
    async def handler(connection: Connection) -> None:
        await connection.request()
        await connection.write(OK)
        if connection.number == 1:
            await connection.write(b"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n")
            await connection.until_lost()

    async with receiving(handler) as receiver:
        assert isinstance(await send(sender, receiver), Answer)
        await asyncio.wait_for(receiver.connections[0].lost.wait(), 5)
        result = await send(sender, receiver)
    assert isinstance(result, Answer)
    assert result.status == 200


@pytest.mark.parametrize("framing", [b"Content-Length: 5", b"Transfer-Encoding: chunked"])
async def test_the_body_of_an_answer_that_has_none_does_not_become_the_next_answer(
    sender: Sender, framing: bytes
) -> None:
    async def handler(connection: Connection) -> None:
        await connection.request()
        await connection.write(b"HTTP/1.1 204 No Content\r\n" + framing + b"\r\n\r\n")
        await connection.request()
        await connection.write(b"5\r\nhello\r\n0\r\n\r\n")

    async with receiving(handler) as receiver:
        results = [await send(sender, receiver) for _ in range(2)]
    assert [result.status for result in results if isinstance(result, Answer)] == [204, 204]
    assert len(receiver.connections) == 2


async def test_a_kept_connection_keeps_no_body(sender: Sender) -> None:
    body = b"x" * (1 << 20)
    references = sys.getrefcount(body)
    async with receiving(keep_answering) as receiver:
        assert isinstance(await sender.send(receiver.destination(), HEADERS, body), Answer)
        assert sys.getrefcount(body) == references


async def test_after_five_hundred_cancelled_sends_five_hundred_succeed(sender: Sender) -> None:
    async def handler(connection: Connection) -> None:
        await connection.request()
        if connection.number <= 500:
            if connection.number == 500:
                all_in.set()
            await connection.until_lost()
        else:
            await connection.write(OK)
            await keep_answering(connection)

    all_in = asyncio.Event()
    async with receiving(handler) as receiver:
        doomed = [asyncio.create_task(send(sender, receiver, deadline_s=60.0)) for _ in range(500)]
        await asyncio.wait_for(all_in.wait(), 30)
        for task in doomed:
            task.cancel()
        ends = await asyncio.gather(*doomed, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ends)
        results = await asyncio.gather(*(send(sender, receiver, deadline_s=60.0) for _ in range(500)))
        assert all(isinstance(result, Answer) for result in results)
        for connection in receiver.connections[:500]:
            await asyncio.wait_for(connection.lost.wait(), 5)
    assert len(receiver.connections) <= 1000


async def test_sends_cancelled_at_any_moment_leave_a_healthy_pool(sender: Sender) -> None:
    async with receiving(keep_answering) as receiver:
        for turns in range(60):
            task = asyncio.create_task(send(sender, receiver))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            result = await send(sender, receiver)
            assert isinstance(result, Answer)
            assert result.body == b"ok"


async def test_destinations_with_different_egress_policies_share_no_connection(sender: Sender) -> None:
    async with receiving(keep_answering) as receiver:
        assert isinstance(await send(sender, receiver, egress="any"), Answer)
        assert isinstance(await send(sender, receiver, egress=("127.0.0.0/8",)), Answer)
        refused = await send(sender, receiver, egress="public")
    assert isinstance(refused, Fault)
    assert refused.error_class is ErrorClass.EGRESS
    assert len(receiver.connections) == 2


async def test_leaving_the_sender_closes_kept_connections() -> None:
    async def handler(connection: Connection) -> None:
        await connection.request()
        await connection.write(OK)
        await connection.until_lost()

    async with receiving(handler) as receiver:
        async with Sender() as sender:
            await send(sender, receiver)
        await asyncio.wait_for(receiver.connections[0].lost.wait(), 5)
