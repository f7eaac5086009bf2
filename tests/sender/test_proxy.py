"""A proxy is used only where a destination names one, and its password stays with it."""

import base64
import ssl
from pathlib import Path

import pytest
import trustme

from relay.model import Answer, ErrorClass, Fault, Tls
from relay.sender import Sender
from tests.sender.receiver import HEADERS, OK, Connection, answering, keep_answering, receiving

CREDENTIALS = base64.b64encode(b"user:hunter2")


async def test_a_proxy_gets_the_whole_url_and_its_credentials(sender: Sender) -> None:
    heads: list[bytes] = []

    async def handler(connection: Connection) -> None:
        for _ in range(2):
            heads.append((await connection.request())[0])
            await connection.write(OK)

    async with receiving(handler) as proxy:
        destination = proxy.destination(
            url="http://empfänger.invalid/hook", proxy=f"http://user:hunter2@127.0.0.1:{proxy.port}"
        )
        for _ in range(2):
            assert isinstance(await sender.send(destination, HEADERS, b"{}"), Answer)
    assert len(proxy.connections) == 1
    for head in heads:
        assert head.startswith(b"POST http://xn--empfnger-3za.invalid/hook HTTP/1.1\r\n")
        assert b"\r\nProxy-Authorization: Basic " + CREDENTIALS + b"\r\n" in head


async def test_tls_through_a_proxy_is_with_the_receiver(sender: Sender, tmp_path: Path) -> None:
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("receiver.invalid").configure_cert(server)

    async def tunnel(connection: Connection) -> None:
        assert (await connection.head()).startswith(b"CONNECT receiver.invalid:443 HTTP/1.1\r\n")
        await connection.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await connection.writer.start_tls(server)
        await keep_answering(connection)

    async with receiving(tunnel) as proxy:
        destination = proxy.destination(
            url="https://receiver.invalid/hook",
            proxy=f"http://127.0.0.1:{proxy.port}",
            tls=Tls(ca_file=str(tmp_path / "ca.pem")),
        )
        for _ in range(2):
            result = await sender.send(destination, HEADERS, b"{}")
            assert isinstance(result, Answer), result
    assert len(proxy.connections) == 1


async def test_a_proxy_that_refuses_a_tunnel_is_a_connect_fault(sender: Sender) -> None:
    async def handler(connection: Connection) -> None:
        await connection.head()
        await connection.write(b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n")

    async with receiving(handler) as proxy:
        destination = proxy.destination(
            url="https://receiver.invalid/hook", proxy=f"http://user:hunter2@127.0.0.1:{proxy.port}"
        )
        result = await sender.send(destination, HEADERS, b"{}")
    assert result == Fault(ErrorClass.CONNECT, "the proxy answered 407 to CONNECT")


async def test_a_dead_proxy_is_named_without_its_password(sender: Sender) -> None:
    async with receiving(answering()) as proxy:
        destination = proxy.destination(proxy=f"http://user:hunter2@127.0.0.1:{proxy.port}")
    assert await sender.send(destination, HEADERS, b"{}") == Fault(
        ErrorClass.CONNECT, f"cannot connect to 127.0.0.1:{proxy.port}: Connection refused"
    )


async def test_the_egress_policy_is_applied_to_the_proxy(sender: Sender) -> None:
    async with receiving(keep_answering) as proxy:
        destination = proxy.destination(proxy=f"http://127.0.0.1:{proxy.port}", egress="public")
        result = await sender.send(destination, HEADERS, b"{}")
    assert isinstance(result, Fault)
    assert result.error_class is ErrorClass.EGRESS
    assert proxy.connections == []


async def test_the_environment_names_no_proxy(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    async with receiving(keep_answering) as proxy, receiving(keep_answering) as receiver:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        assert isinstance(await sender.send(receiver.destination(), HEADERS, b"{}"), Answer)
    assert proxy.connections == []


async def test_a_proxy_that_wants_tls_itself_gets_it_and_the_receivers_within(sender: Sender, tmp_path: Path) -> None:
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    outer, inner = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("localhost").configure_cert(outer)
    ca.issue_cert("receiver.invalid").configure_cert(inner)

    async def tunnel(connection: Connection) -> None:
        await connection.head()
        await connection.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await connection.writer.start_tls(inner)
        await keep_answering(connection)

    async with receiving(tunnel, tls=outer) as proxy:
        destination = proxy.destination(
            url="https://receiver.invalid/hook",
            proxy=f"https://localhost:{proxy.port}",
            tls=Tls(ca_file=str(tmp_path / "ca.pem")),
        )
        for _ in range(2):
            result = await sender.send(destination, HEADERS, b"{}")
            assert isinstance(result, Answer), result
    assert len(proxy.connections) == 1


async def test_credentials_for_a_proxy_stay_with_it_where_there_is_a_tunnel(sender: Sender, tmp_path: Path) -> None:
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("receiver.invalid").configure_cert(server)
    heads: list[bytes] = []

    async def tunnel(connection: Connection) -> None:
        heads.append(await connection.head())
        await connection.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await connection.writer.start_tls(server)
        heads.append((await connection.request())[0])
        await connection.write(OK)

    async with receiving(tunnel) as proxy:
        destination = proxy.destination(
            url="https://receiver.invalid/hook",
            proxy=f"http://user:hunter2@127.0.0.1:{proxy.port}",
            tls=Tls(ca_file=str(tmp_path / "ca.pem")),
        )
        assert isinstance(await sender.send(destination, HEADERS, b"{}"), Answer)
    to_proxy, to_receiver = heads
    assert b"\r\nProxy-Authorization: Basic " + CREDENTIALS + b"\r\n" in to_proxy
    assert b"Proxy-Authorization" not in to_receiver
    assert to_receiver.startswith(b"POST /hook HTTP/1.1\r\nHost: receiver.invalid\r\n")


@pytest.mark.parametrize("answer", [b"", b"220 mail.example ESMTP\r\n\r\n", b"HTTP/1.1 " + b"x" * 20_000])
async def test_a_proxy_that_does_not_answer_as_one_is_a_connect_fault(sender: Sender, answer: bytes) -> None:
    async def handler(connection: Connection) -> None:
        await connection.head()
        await connection.write(answer)

    async with receiving(handler) as proxy:
        destination = proxy.destination(
            url="https://receiver.invalid/hook", proxy=f"http://user:hunter2@127.0.0.1:{proxy.port}"
        )
        result = await sender.send(destination, HEADERS, b"{}")
    assert result == Fault(ErrorClass.CONNECT, "the proxy did not answer to CONNECT")


async def test_a_receiver_without_tls_behind_a_tunnel_is_named(sender: Sender) -> None:
    async def tunnel(connection: Connection) -> None:
        await connection.head()
        await connection.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await connection.reader.read(1)
        await connection.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await connection.until_lost()

    async with receiving(tunnel) as proxy:
        destination = proxy.destination(url="https://receiver.invalid/hook", proxy=f"http://127.0.0.1:{proxy.port}")
        result = await sender.send(destination, HEADERS, b"{}")
    assert isinstance(result, Fault)
    assert result.error_class is ErrorClass.TLS
    assert result.detail.startswith("no TLS with receiver.invalid:443: ")
