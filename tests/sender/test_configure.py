"""What becomes of connections and contexts when destinations or their files change."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from relay.config.content import content
from relay.errors import ConfigError
from relay.model import Answer, Destination, Fault, Tls
from relay.sender import Sender
from tests.sender.receiver import HEADERS, OK, Connection, Receiver, keep_answering, receiving
from tests.sender.test_tls import Authority


def trusting(receiver: Receiver, file: str) -> Destination:
    """A destination that trusts what is in this file now."""
    tls = Tls(ca_file=file, contents=(("ca_file", content(file)),))
    return receiver.destination(url=f"https://localhost:{receiver.port}/", tls=tls)


async def test_a_replaced_authority_is_trusted_from_then_on(sender: Sender, tmp_path: Path) -> None:
    old, new = (Authority(tmp_path / name) for name in ("old", "new"))
    file = tmp_path / "ca.pem"
    old.ca.cert_pem.write_to_path(str(file))
    async with receiving(keep_answering, tls=new.server("localhost")) as receiver:
        before = trusting(receiver, str(file))
        assert isinstance(await sender.send(before, HEADERS, b"{}"), Fault)
        new.ca.cert_pem.write_to_path(str(file))
        after = trusting(receiver, str(file))
        sender.read([after])
        sender.configure([after])
        assert isinstance(await sender.send(after, HEADERS, b"{}"), Answer)


async def test_what_is_in_flight_ends_and_its_connection_is_closed_then(sender: Sender) -> None:
    answering = asyncio.Event()

    async def answer(connection: Connection) -> None:
        await connection.request()
        await answering.wait()
        await connection.write(OK)
        await connection.until_lost()

    async with receiving(answer) as receiver:
        sending = asyncio.create_task(sender.send(receiver.destination(), HEADERS, b"{}"))
        while not receiver.connections:
            await asyncio.sleep(0)
        sender.configure([])
        assert not receiver.connections[0].lost.is_set()
        answering.set()
        assert isinstance(await sending, Answer)
        await asyncio.wait_for(receiver.connections[0].lost.wait(), 5)


async def test_a_kept_connection_goes_on_where_only_the_limits_change(sender: Sender) -> None:
    async with receiving(keep_answering) as receiver:
        destination = receiver.destination()
        await sender.send(destination, HEADERS, b"{}")
        changed = replace(destination, max_in_flight=3, secrets=(b"new",))
        sender.configure([changed])
        await sender.send(changed, HEADERS, b"{}")
    assert len(receiver.connections) == 1


async def test_a_certificate_without_its_key_is_refused_by_name(sender: Sender, authority: Authority) -> None:
    certificate, _ = authority.client()
    _, other = Authority(authority.folder / "other").client()
    tls = Tls(client_certificate_file=certificate, client_key_file=other, contents=(("client_key_file", b"x"),))
    with pytest.raises(ConfigError) as caught:
        sender.read([Destination("shop", "https://localhost/", tls=tls)])
    assert str(caught.value) == (
        f"destinations.shop.tls: cannot use the TLS files {certificate}, {other}: KEY_VALUES_MISMATCH"
    )


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """An authority with files in a folder."""
    return Authority(tmp_path)
