"""A send that is cancelled, in whatever phase, takes its connection with it and harms nobody else."""

import asyncio
import socket
import ssl
import stat
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from relay.model import Answer, Tls
from relay.sender import Sender
from tests.sender.receiver import HEADERS, OK, UNSENDABLE, Connection, keep_answering, receiving
from tests.sender.test_tls import Authority


def sockets() -> int:
    """How many sockets this process has open."""
    return sum(stat.S_ISSOCK(path.stat().st_mode) for path in list(Path("/proc/self/fd").iterdir()) if path.exists())


async def cancelled(send: Awaitable[object], reached: asyncio.Event) -> None:
    """Cancel a send as soon as it has reached what is meant."""
    task = asyncio.ensure_future(send)
    await asyncio.wait_for(reached.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    "written",
    [b"", b"HTTP/1.1 200 OK\r\nX", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"],
    ids=["", "head", "body"],
)
@pytest.mark.parametrize("kept", [False, True])
async def test_while_an_answer_is_awaited(sender: Sender, written: bytes, *, kept: bool) -> None:
    async def handler(connection: Connection) -> None:
        if connection.number == 1:
            if kept:
                await connection.request()
                await connection.write(OK)
            await connection.request()
            await connection.write(written)
            reached.set()
            await connection.until_lost()
        else:
            await keep_answering(connection)

    reached = asyncio.Event()
    async with receiving(handler) as receiver:
        if kept:
            assert isinstance(await sender.send(receiver.destination(), HEADERS, b"{}"), Answer)
        await cancelled(sender.send(receiver.destination(), HEADERS, b"{}"), reached)
        await asyncio.wait_for(receiver.connections[0].lost.wait(), 5)
        assert isinstance(await sender.send(receiver.destination(), HEADERS, b"{}"), Answer)
    assert len(receiver.connections) == 2


async def test_while_a_body_is_sent_to_a_receiver_that_does_not_read(sender: Sender) -> None:
    async def handler(connection: Connection) -> None:
        await connection.head()
        reached.set()
        await told.wait()
        await connection.until_lost()

    reached, told = asyncio.Event(), asyncio.Event()
    async with receiving(handler, buffer_bytes=4096) as receiver:
        await cancelled(sender.send(receiver.destination(), HEADERS, bytes(UNSENDABLE)), reached)
        told.set()
        await asyncio.wait_for(receiver.connections[0].lost.wait(), 5)
    assert receiver.connections[0].read < UNSENDABLE, "the rest was sent for nobody"


async def test_what_the_kernel_has_not_sent_yet_is_never_sent(sender: Sender) -> None:
    """Fails when a request that was given up may arrive later, behind the one that took its place."""

    async def handler(connection: Connection) -> None:
        await connection.head()
        reached.set()
        await told.wait()
        try:
            await connection.reader.read()
        except ConnectionResetError:
            reset.set()

    reached, told, reset = asyncio.Event(), asyncio.Event(), asyncio.Event()
    async with receiving(handler, buffer_bytes=4096) as receiver:
        await cancelled(sender.send(receiver.destination(), HEADERS, bytes(UNSENDABLE)), reached)
        told.set()
        await asyncio.wait_for(reset.wait(), 5)


async def test_while_a_name_is_looked_up(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    original, release, reached = socket.getaddrinfo, threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def resolve(host: object, *arguments: object, **options: object) -> object:
        if host == b"slow.test":
            loop.call_soon_threadsafe(reached.set)
            release.wait(10)
            host = b"127.0.0.1"
        return original(host, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    async with receiving(keep_answering) as receiver:
        destination = receiver.destination(url=f"http://slow.test:{receiver.port}/")
        await cancelled(sender.send(destination, HEADERS, b"{}"), reached)
        other = asyncio.create_task(sender.send(destination, HEADERS, b"{}"))
        release.set()
        assert isinstance(await other, Answer), "the look-up that both waited for was cancelled with the first"
    assert len(receiver.connections) == 1


async def test_while_a_connection_is_made(sender: Sender) -> None:
    before = sockets()
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, socket.socket() as only_guest:
        only_guest.connect(full.getsockname())
        async with receiving(keep_answering) as receiver:
            destination = receiver.destination(url=f"http://127.0.0.1:{full.getsockname()[1]}/")
            task = asyncio.create_task(sender.send(destination, HEADERS, b"{}"))
            await until(lambda: sockets() > before + 3)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
    await until(lambda: sockets() <= before)


async def test_while_tls_is_agreed_on(sender: Sender, tmp_path: Path) -> None:
    async def handler(connection: Connection) -> None:
        await connection.reader.read(1)
        reached.set()
        await connection.until_lost()

    reached = asyncio.Event()
    authority = Authority(tmp_path)
    async with receiving(handler) as receiver:
        destination = receiver.destination(url=f"https://localhost:{receiver.port}/", tls=Tls(ca_file=authority.file))
        await cancelled(sender.send(destination, HEADERS, b"{}"), reached)
        await asyncio.wait_for(receiver.connections[0].lost.wait(), 5)


@pytest.mark.parametrize("answered", [False, True], ids=["CONNECT", "TLS"])
async def test_while_a_tunnel_is_opened(sender: Sender, *, answered: bool) -> None:
    async def handler(connection: Connection) -> None:
        await connection.head()
        if answered:
            await connection.write(b"HTTP/1.1 200 OK\r\n\r\n")
            await connection.reader.read(1)
        reached.set()
        await connection.until_lost()

    reached = asyncio.Event()
    async with receiving(handler) as proxy:
        destination = proxy.destination(url="https://receiver.invalid/", proxy=f"http://127.0.0.1:{proxy.port}")
        await cancelled(sender.send(destination, HEADERS, b"{}"), reached)
        await asyncio.wait_for(proxy.connections[0].lost.wait(), 5)


async def test_after_the_answer_arrived_and_before_anybody_looked(sender: Sender) -> None:
    """The connection is not handed on, whatever is next to be run when the answer arrives."""
    async with receiving(keep_answering) as receiver:
        for _ in range(20):
            task = asyncio.create_task(sender.send(receiver.destination(), HEADERS, b"{}"))
            others = [asyncio.create_task(sender.send(receiver.destination(), HEADERS, b"{}")) for _ in range(3)]
            await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)
            task.cancel()
            results = await asyncio.gather(task, *others, return_exceptions=True)
            assert all(isinstance(result, Answer) for result in results[1:])


async def test_over_tls_with_a_kept_connection(sender: Sender, tmp_path: Path) -> None:
    async def handler(connection: Connection) -> None:
        if connection.number == 1:
            await connection.request()
            await connection.write(OK)
            await connection.request()
            reached.set()
            await connection.until_lost()
        else:
            await keep_answering(connection)

    reached = asyncio.Event()
    authority = Authority(tmp_path)
    server: ssl.SSLContext = authority.server("localhost")
    async with receiving(handler, tls=server) as receiver:
        destination = receiver.destination(url=f"https://localhost:{receiver.port}/", tls=Tls(ca_file=authority.file))
        assert isinstance(await sender.send(destination, HEADERS, b"{}"), Answer)
        await cancelled(sender.send(destination, HEADERS, b"{}"), reached)
        await asyncio.wait_for(receiver.connections[0].lost.wait(), 5)
        assert isinstance(await sender.send(destination, HEADERS, b"{}"), Answer)
    assert len(receiver.connections) == 2
