"""Receivers whose certificate or protocol is wrong."""

import ssl
import warnings
from pathlib import Path

import pytest

from tests.receivers.street import House, Street
from tests.sender.receiver import Connection, Handler, keep_answering
from tests.sender.test_tls import Authority


def speaking(server: ssl.SSLContext) -> Handler:
    """A handler that speaks TLS, and answers everything if it comes to that."""

    async def handler(connection: Connection) -> None:
        await connection.writer.start_tls(server)
        await keep_answering(connection)

    return handler


async def refused(street: Street, house: House, server: ssl.SSLContext) -> str:
    """Send one job twice, see both attempts fail as TLS faults, and return what the last one says."""
    fate = await street.visit(house, speaking(server), max_attempts=2)
    assert (fate.status, fate.failed) == ("dead", [("tls", None)] * 2)
    return await street.detail(fate.job)


async def test_a_trusted_certificate_is_delivered_to_over_one_connection(street: Street, authority: Authority) -> None:
    house = street.house("fine")
    for _ in range(3):
        assert (await street.visit(house, speaking(authority.server("localhost")))).status == "done"
    assert len(house.connections) == 1


async def test_an_expired_certificate_is_not_trusted(street: Street, authority: Authority) -> None:
    detail = await refused(street, street.house("expired"), authority.server("localhost", expired=True))
    assert "certificate has expired" in detail


async def test_a_self_signed_certificate_is_not_trusted(street: Street, tmp_path: Path) -> None:
    stranger = Authority(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    stranger.ca.private_key_pem.write_to_path(tmp_path / "key.pem")
    server.load_cert_chain(stranger.file, tmp_path / "key.pem")
    assert "self-signed certificate" in await refused(street, street.house("self-signed"), server)


async def test_a_certificate_for_another_host_is_not_trusted(street: Street, authority: Authority) -> None:
    detail = await refused(street, street.house("wrong-host"), authority.server("other.example"))
    assert "Hostname mismatch" in detail


async def test_tls_1_0_only_is_refused(street: Street, authority: Authority) -> None:
    server = authority.server("localhost")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        server.minimum_version = server.maximum_version = ssl.TLSVersion.TLSv1
    server.set_ciphers("DEFAULT@SECLEVEL=0")
    await refused(street, street.house("old"), server)


@pytest.mark.parametrize("name", ["anonymous", "client"])
async def test_a_receiver_that_requires_a_client_certificate_gets_it_or_gets_nothing(
    street: Street, authority: Authority, name: str
) -> None:
    server = authority.server("localhost")
    server.maximum_version = ssl.TLSVersion.TLSv1_2  # by 1.3 the refusal comes after the client's last word
    server.verify_mode = ssl.CERT_REQUIRED
    authority.ca.configure_trust(server)
    if name == "client":
        assert (await street.visit(street.house(name), speaking(server))).status == "done"
    else:
        await refused(street, street.house(name), server)


async def test_plain_http_where_tls_is_expected_is_a_tls_fault(street: Street) -> None:
    async def handler(connection: Connection) -> None:
        await connection.reader.read(1)
        await connection.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await connection.until_lost()

    fate = await street.visit(street.house("plain"), handler)
    assert fate.failed == [("tls", None)]


async def test_a_handshake_that_never_ends_is_given_up_and_its_neighbours_never_waited(street: Street) -> None:
    async def handler(connection: Connection) -> None:
        await connection.until_lost()

    fate = await street.visit(street.house("silent"), handler)
    assert fate.failed == [("connect", None)]
    assert await street.good_came_first(fate)


async def test_a_revoked_certificate_is_delivered_to_even_where_the_file_of_authorities_lists_it(
    street: Street, revoked: tuple[ssl.SSLContext, str]
) -> None:
    fate = await street.visit(street.house("revoked"), speaking(revoked[0]))
    assert (fate.status, fate.failed) == ("done", [])
