"""TLS is verified per destination, and what is wrong with it is said."""

import contextlib
import datetime as dt
import socket
import ssl
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from relay.model import Answer, ErrorClass, Fault, Result, Tls
from relay.sender import Sender
from tests.sender.receiver import HEADERS, Connection, Receiver, keep_answering, receiving

YESTERDAY = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)


class Authority:
    """A certificate authority and its file."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.ca = trustme.CA()
        self.folder = folder
        self.file = str(folder / "ca.pem")
        self.ca.cert_pem.write_to_path(self.file)

    def server(self, *names: str, expired: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.ca.issue_cert(*names, not_after=YESTERDAY if expired else None).configure_cert(context)
        return context

    def client(self) -> tuple[str, str]:
        certificate = self.ca.issue_cert("relay.test")
        files = str(self.folder / "client.pem"), str(self.folder / "client.key")
        certificate.cert_chain_pems[0].write_to_path(files[0])
        certificate.private_key_pem.write_to_path(files[1])
        return files


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


async def send(sender: Sender, receiver: Receiver, tls: Tls, host: str = "localhost") -> Result:
    destination = receiver.destination(url=f"https://{host}:{receiver.port}/", tls=tls)
    return await sender.send(destination, HEADERS, b"{}")


async def fault(sender: Sender, server: ssl.SSLContext, tls: Tls, host: str = "localhost") -> str:
    async with receiving(keep_answering, tls=server) as receiver:
        result = await send(sender, receiver, tls, host)
    assert isinstance(result, Fault), result
    assert result.error_class is ErrorClass.TLS
    return result.detail


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_a_certificate_of_the_given_authority_is_trusted(sender: Sender, authority: Authority, host: str) -> None:
    async with receiving(keep_answering, tls=authority.server(host)) as receiver:
        for _ in range(3):
            assert isinstance(await send(sender, receiver, Tls(ca_file=authority.file), host), Answer)
    assert len(receiver.connections) == 1


async def test_the_host_name_is_sent_as_sni(sender: Sender, authority: Authority) -> None:
    names: list[str | None] = []
    server = authority.server("localhost")
    server.sni_callback = lambda _socket, name, _context: names.append(name)
    async with receiving(keep_answering, tls=server) as receiver:
        await send(sender, receiver, Tls(ca_file=authority.file))
    assert names == ["localhost"]


async def test_an_unknown_authority_is_not_trusted(sender: Sender, authority: Authority) -> None:
    detail = await fault(sender, authority.server("localhost"), Tls())
    assert "unable to get local issuer certificate" in detail


async def test_a_self_signed_certificate_is_not_trusted(sender: Sender, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.ca.private_key_pem.write_to_path(tmp_path / "key.pem")
    server.load_cert_chain(authority.file, tmp_path / "key.pem")
    assert "self-signed certificate" in await fault(sender, server, Tls())


async def test_a_certificate_for_another_host_is_not_trusted(sender: Sender, authority: Authority) -> None:
    detail = await fault(sender, authority.server("other.example"), Tls(ca_file=authority.file))
    assert "localhost" in detail
    assert "Hostname mismatch" in detail


async def test_an_expired_certificate_is_not_trusted(sender: Sender, authority: Authority) -> None:
    detail = await fault(sender, authority.server("localhost", expired=True), Tls(ca_file=authority.file))
    assert "certificate has expired" in detail


async def test_a_receiver_that_speaks_plain_http_is_a_tls_fault(sender: Sender, authority: Authority) -> None:
    async def handler(connection: Connection) -> None:
        await connection.reader.read(1)
        await connection.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await connection.until_lost()

    async with receiving(handler) as receiver:
        result = await send(sender, receiver, Tls(ca_file=authority.file))
    assert isinstance(result, Fault)
    assert result.error_class is ErrorClass.TLS


async def test_a_handshake_that_is_broken_off_is_a_tls_fault(sender: Sender, authority: Authority) -> None:
    async def handler(connection: Connection) -> None:
        await connection.reader.read(1)
        connection.reset()

    async with receiving(handler) as receiver:
        result = await send(sender, receiver, Tls(ca_file=authority.file))
    assert result == Fault(ErrorClass.TLS, f"localhost:{receiver.port} broke off the TLS handshake")


@contextlib.contextmanager
def refusing(context: ssl.SSLContext) -> Iterator[Receiver]:
    """A server whose handshake fails, and that tells the client why; asyncio's resets instead."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False) as secure:
            with contextlib.suppress(ssl.SSLError):
                secure.do_handshake()
            with contextlib.suppress(OSError):
                secure.recv(1)  # or closing with unread bytes would reset before the reason was read
            while socket.socket.recv(secure, 4096):
                pass

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield Receiver(listener.getsockname()[1])
    finally:
        thread.join(10)
        listener.close()


async def refused(sender: Sender, server: ssl.SSLContext, tls: Tls) -> str:
    with refusing(server) as receiver:
        result = await send(sender, receiver, tls)
    assert isinstance(result, Fault)
    assert result.error_class is ErrorClass.TLS
    return result.detail


VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


def client_wanted(authority: Authority, version: ssl.TLSVersion) -> ssl.SSLContext:
    server = authority.server("localhost")
    server.maximum_version = version
    server.verify_mode = ssl.CERT_REQUIRED
    authority.ca.configure_trust(server)
    return server


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_required_client_certificate_is_presented(
    sender: Sender, authority: Authority, version: ssl.TLSVersion
) -> None:
    certificate, key = authority.client()
    tls = Tls(ca_file=authority.file, client_certificate_file=certificate, client_key_file=key)
    async with receiving(keep_answering, tls=client_wanted(authority, version)) as receiver:
        assert isinstance(await send(sender, receiver, tls), Answer)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_missing_client_certificate_is_a_tls_fault(
    sender: Sender, authority: Authority, version: ssl.TLSVersion
) -> None:
    assert await refused(sender, client_wanted(authority, version), Tls(ca_file=authority.file))


async def test_tls_before_1_2_is_refused(sender: Sender, authority: Authority) -> None:
    server = authority.server("localhost")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        server.minimum_version = ssl.TLSVersion.TLSv1
        server.maximum_version = ssl.TLSVersion.TLSv1_1
    server.set_ciphers("DEFAULT@SECLEVEL=0")
    assert "VERSION" in await refused(sender, server, Tls(ca_file=authority.file))


async def test_a_higher_minimum_version_is_kept(sender: Sender, authority: Authority) -> None:
    server = authority.server("localhost")
    server.maximum_version = ssl.TLSVersion.TLSv1_2
    detail = await refused(sender, server, Tls(ca_file=authority.file, minimum_version="1.3"))
    assert "VERSION" in detail


async def test_a_missing_file_is_a_fault_that_names_it_and_heals(sender: Sender, authority: Authority) -> None:
    late = authority.folder / "late.pem"
    async with receiving(keep_answering, tls=authority.server("localhost")) as receiver:
        result = await send(sender, receiver, Tls(ca_file=str(late)))
        assert result == Fault(ErrorClass.TLS, f"cannot use the TLS files {late}: No such file or directory")
        authority.ca.cert_pem.write_to_path(str(late))
        assert isinstance(await send(sender, receiver, Tls(ca_file=str(late))), Answer)
