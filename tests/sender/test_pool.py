"""Which connection a request takes, and how long one is kept."""

import asyncio

import pytest

from relay.http import transport
from relay.model import Answer, Result
from relay.sender import Sender
from tests.sender.receiver import HEADERS, OK, Connection, Receiver, keep_answering, receiving


async def send(sender: Sender, receiver: Receiver) -> Result:
    return await sender.send(receiver.destination(), HEADERS, b"{}")


class Gate:
    """A handler that answers a round of requests only when all of them have arrived."""

    def __init__(self, size: int) -> None:
        self.barrier = asyncio.Barrier(size)
        self.served: list[int] = []

    async def __call__(self, connection: Connection) -> None:
        while True:
            await connection.request()
            self.served.append(connection.number)
            await self.barrier.wait()
            await connection.write(OK)


async def test_as_many_connections_are_made_as_requests_are_out_at_once_and_then_no_more(sender: Sender) -> None:
    async with receiving(Gate(20)) as receiver:
        for _ in range(5):
            results = await asyncio.gather(*(send(sender, receiver) for _ in range(20)))
            assert all(isinstance(result, Answer) for result in results)
    assert len(receiver.connections) == 20


async def test_the_connection_used_last_is_used_next(sender: Sender) -> None:
    gate = Gate(5)
    async with receiving(gate) as receiver:
        await asyncio.gather(*(send(sender, receiver) for _ in range(5)))
        gate.served.clear()
        gate.barrier = asyncio.Barrier(1)
        for _ in range(10):
            await send(sender, receiver)
    assert len(set(gate.served)) == 1


async def test_an_idle_connection_is_closed_after_a_while_and_a_busy_one_is_not(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "IDLE_S", 0.05)
    gate = Gate(2)
    async with receiving(gate) as receiver:
        await asyncio.gather(*(send(sender, receiver) for _ in range(2)))
        gate.barrier = asyncio.Barrier(1)
        first, second = receiver.connections
        while not (first.reader.at_eof() or second.reader.at_eof()):
            assert isinstance(await send(sender, receiver), Answer)
        assert first.reader.at_eof() != second.reader.at_eof()
        for connection in receiver.connections:
            await asyncio.wait_for(connection.lost.wait(), 5)
    assert len(receiver.connections) == 2


async def test_a_connection_that_the_receiver_closes_while_idle_is_not_tried(sender: Sender) -> None:
    requests = 0

    async def handler(connection: Connection) -> None:
        nonlocal requests
        await connection.request()
        requests += 1
        await connection.write(OK)
        connection.writer.write_eof()
        await connection.until_lost()

    async with receiving(handler) as receiver:
        for number in range(10):
            assert isinstance(await send(sender, receiver), Answer)
            await asyncio.wait_for(receiver.connections[number].lost.wait(), 5)
    assert requests == len(receiver.connections) == 10


@pytest.mark.parametrize("unasked", [b"\r\n", b"x", OK, b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n"])
async def test_a_connection_on_which_unasked_bytes_arrive_is_closed(sender: Sender, unasked: bytes) -> None:
    async def handler(connection: Connection) -> None:
        await connection.request()
        await connection.write(OK)
        await told.wait()
        await connection.write(unasked)
        await connection.until_lost()

    told = asyncio.Event()
    async with receiving(handler) as receiver:
        assert isinstance(await send(sender, receiver), Answer)
        told.set()
        await asyncio.wait_for(receiver.connections[0].lost.wait(), 5)
        result = await send(sender, receiver)
    assert isinstance(result, Answer)
    assert (result.status, len(receiver.connections)) == (200, 2)


async def test_paths_of_one_host_share_its_connections_and_hosts_do_not(sender: Sender) -> None:
    async with receiving(keep_answering) as receiver:
        for url in ("127.0.0.1:{}/a", "127.0.0.1:{}/b?c", "localhost:{}/a"):
            destination = receiver.destination(url="http://" + url.format(receiver.port))
            assert isinstance(await sender.send(destination, HEADERS, b"{}"), Answer)
    assert len(receiver.connections) == 2
