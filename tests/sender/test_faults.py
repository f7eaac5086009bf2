"""Whatever the network or a receiver does wrong is a value with the right class, within the deadline."""

import asyncio
import socket
import tracemalloc

import pytest

from relay.model import ErrorClass, Fault
from relay.sender import Sender
from tests.sender.receiver import HEADERS, UNSENDABLE, Connection, Handler, answering, receiving


async def fault(sender: Sender, handler: Handler, body: bytes = b"{}", **settings: object) -> Fault:
    async with receiving(handler, buffer_bytes=4096) as receiver:
        result = await sender.send(receiver.destination(**settings), HEADERS, body)
        if receiver.connections:
            receiver.connections[0].writer.transport.abort()
    assert isinstance(result, Fault), result
    return result


async def never_answer(connection: Connection) -> None:
    await connection.request()
    await connection.until_lost()


async def drip(connection: Connection, start: bytes) -> None:
    await connection.request()
    await connection.write(start)
    while True:
        await connection.write(b"x")
        await asyncio.sleep(0.01)


async def drip_head(connection: Connection) -> None:
    await drip(connection, b"HTTP/1.1 200 OK\r\nX: ")


async def drip_body(connection: Connection) -> None:
    await drip(connection, b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")


@pytest.mark.parametrize(
    ("handler", "phase"),
    [
        (never_answer, "while waiting for the answer"),
        (drip_head, "while waiting for the answer"),
        (drip_body, "while reading the answer's body"),
    ],
)
async def test_one_deadline_spans_the_whole_answer(sender: Sender, handler: Handler, phase: str) -> None:
    assert await fault(sender, handler, deadline_s=1.0) == Fault(
        ErrorClass.DEADLINE, f"no complete answer within 1.0 s, given up {phase}"
    )


async def test_a_receiver_that_never_reads_costs_no_connection_after_the_deadline(sender: Sender) -> None:
    async def handler(connection: Connection) -> None:
        await given_up.wait()
        await connection.until_lost()

    given_up = asyncio.Event()
    async with receiving(handler, buffer_bytes=4096) as receiver:
        result = await sender.send(receiver.destination(deadline_s=1.0), HEADERS, bytes(UNSENDABLE))
        given_up.set()
        assert isinstance(result, Fault)
        assert result.error_class is ErrorClass.DEADLINE
        assert result.detail.endswith("while sending the request")
        await asyncio.wait_for(receiver.connections[0].lost.wait(), 5)
    assert receiver.connections[0].read < UNSENDABLE, "the connection waited to be read"


async def test_a_long_body_that_waits_to_be_read_is_not_copied(sender: Sender) -> None:
    async def handler(connection: Connection) -> None:
        accepted.set()
        await given_up.wait()
        await connection.until_lost()

    accepted, given_up, body = asyncio.Event(), asyncio.Event(), bytes(UNSENDABLE)
    async with receiving(handler, buffer_bytes=4096) as receiver:
        tracemalloc.start()
        result = await sender.send(receiver.destination(deadline_s=0.5), HEADERS, body)
        _, most_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        await accepted.wait()
        given_up.set()
    assert isinstance(result, Fault)
    assert most_bytes < UNSENDABLE / 8


async def test_a_receiver_that_hangs_up_in_the_middle_of_the_request_is_not_waited_for(sender: Sender) -> None:
    async def handler(connection: Connection) -> None:
        await connection.head()
        connection.writer.write_eof()
        await given_up.wait()
        await connection.until_lost()

    given_up = asyncio.Event()
    async with receiving(handler, buffer_bytes=4096) as receiver:
        result = await sender.send(receiver.destination(deadline_s=60.0), HEADERS, bytes(UNSENDABLE))
        given_up.set()
    assert result == Fault(ErrorClass.WRITE, "the connection broke while sending the request: closed by the receiver")


async def test_closing_before_the_answer_is_a_read_fault(sender: Sender) -> None:
    assert await fault(sender, answering()) == Fault(
        ErrorClass.READ, "the connection broke while waiting for the answer: closed by the receiver"
    )


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\nContent-"])
async def test_a_reset_before_the_head_is_complete_is_a_read_fault(sender: Sender, sent: bytes) -> None:
    async def handler(connection: Connection) -> None:
        await connection.request()
        await connection.write(sent)
        await asyncio.sleep(0.01)  # or the reset overtakes what was sent
        connection.reset()

    assert await fault(sender, handler) == Fault(
        ErrorClass.READ, "the connection broke while waiting for the answer: Connection reset by peer"
    )


async def test_a_reset_in_the_middle_of_the_request_is_a_write_fault(sender: Sender) -> None:
    async def handler(connection: Connection) -> None:
        await connection.head()
        connection.reset()

    result = await fault(sender, handler, bytes(UNSENDABLE))
    assert result.error_class is ErrorClass.WRITE


@pytest.mark.parametrize(
    "segment",
    [
        b"\x00\x16\x03\x01 what is this\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2p1\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 2**20 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: a\r\n" * 10_000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
    ],
    ids=["bytes", "ssh", "long header", "many headers", "two lengths", "negative length", "status"],
)
async def test_what_is_not_http_is_a_protocol_fault_of_one_short_line(sender: Sender, segment: bytes) -> None:
    result = await fault(sender, answering(segment))
    assert result.error_class is ErrorClass.PROTOCOL
    assert len(result.detail) < 250
    assert result.detail.isprintable()


async def test_a_port_that_nobody_listens_on_is_a_connect_fault(sender: Sender) -> None:
    async with receiving(answering()) as receiver:
        destination = receiver.destination()
    assert await sender.send(destination, HEADERS, b"{}") == Fault(
        ErrorClass.CONNECT, f"cannot connect to 127.0.0.1:{receiver.port}: Connection refused"
    )


async def test_connecting_has_a_limit_of_its_own(sender: Sender) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, socket.socket() as only_guest:
        only_guest.connect(full.getsockname())
        async with receiving(answering()) as receiver:
            destination = receiver.destination(
                url=f"http://127.0.0.1:{full.getsockname()[1]}/", connect_timeout_s=0.2, deadline_s=30.0
            )
        result = await sender.send(destination, HEADERS, b"{}")
    assert isinstance(result, Fault)
    assert (result.error_class, result.detail[:13]) == (ErrorClass.CONNECT, "no connection")


@pytest.mark.parametrize("host", ["no-such-host.invalid", f"{'a' * 64}.example"])
async def test_a_name_that_does_not_resolve_is_a_dns_fault(sender: Sender, host: str) -> None:
    async with receiving(answering()) as receiver:
        result = await sender.send(receiver.destination(url=f"http://{host}/secret"), HEADERS, b"{}")
    assert isinstance(result, Fault)
    assert result.error_class is ErrorClass.DNS
    assert result.detail.startswith(f"{host} does not resolve: ")


async def reset_at_once(connection: Connection) -> None:
    connection.reset()


@pytest.mark.parametrize("handler", [answering(), answering(b"nonsense\r\n\r\n"), reset_at_once, never_answer])
async def test_no_fault_names_the_path_or_the_userinfo_of_a_url(sender: Sender, handler: Handler) -> None:
    async with receiving(handler) as receiver:
        url = f"http://user:pass@127.0.0.1:{receiver.port}/services/T0/token?key=token"
        result = await sender.send(receiver.destination(url=url, deadline_s=1.0), HEADERS, bytes(2**20))
        receiver.connections[0].writer.transport.abort()
    assert isinstance(result, Fault)
    assert "pass" not in result.detail
    assert "token" not in result.detail
