"""One relay process for all receivers of a test process, on a database of its own."""

import contextlib
import json
import socket
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from itertools import chain
from pathlib import Path

import psycopg
import pytest

from relay.demo.nest import Nest
from relay.demo.postgres import Postgres
from tests.receiver import Receiver
from tests.receivers import certificates
from tests.receivers.hosts import NAMES, closed, filtering, has_ipv6, named, one_port, port_of
from tests.receivers.street import NEW_SECRET, USUAL, House, Houses, Street
from tests.sender.receiver import receiving
from tests.sender.test_tls import Authority
from tests.service.replica import Installation

PLAIN: Houses = {f"house-{number}": {} for number in range(1, 101)}


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The authority that houses are trusted by."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def revoked(authority: Authority) -> tuple[ssl.SSLContext, str]:
    """A server whose certificate is revoked, and a file with its authority and the list that says so."""
    return certificates.revoked(authority)


@pytest.fixture(scope="session")
def listeners() -> Iterator[dict[str, list[socket.socket]]]:
    """What listens for a house that needs more, or another, than 127.0.0.1."""
    six = ["::1"] if has_ipv6() else []
    built = {
        "moving": one_port("127.0.0.1", "127.0.0.2"),
        "dual": one_port("127.0.0.1", *six),
        "literal": one_port(*(six or ["127.0.0.1"])),
        "filtered": one_port("127.0.0.1"),
    }
    yield built
    for listener in chain.from_iterable(built.values()):
        listener.close()


@pytest.fixture(scope="session")
def houses(
    authority: Authority, revoked: tuple[ssl.SSLContext, str], listeners: dict[str, list[socket.socket]]
) -> Iterator[Houses]:
    """Every hostile destination with its settings."""
    ports = {name: port_of(sockets[0]) for name, sockets in listeners.items()}
    with filtering(listeners["filtered"][0]), closed() as closed_port:
        yield {
            **PLAIN,
            "two": {"max_in_flight": 2},
            "rotating": {"secrets": [{"env": "NEW_SECRET"}, {"env": "SECRET"}]},
            "later": {"retry": {"base_s": 1.5, "cap_s": 1.5}},
            "closed": {"url": f"http://127.0.0.1:{closed_port}/"},
            "filtered": {"url": f"http://127.0.0.1:{ports['filtered']}/"},
            **named(ports),
            **certificates.secure(authority, revoked[1]),
        }


@pytest.fixture(scope="session")
async def shared(
    nest: Nest, postgres: Postgres, template: str, tmp_path_factory: pytest.TempPathFactory, houses: Houses
) -> AsyncIterator[Street]:
    """The relay process, with the good destination and the houses."""
    dsn, folder = postgres.create_database("receivers", template=template), tmp_path_factory.mktemp("street")
    built = {name: House(name) for name in houses}
    async with contextlib.AsyncExitStack() as stack:
        good = await stack.enter_async_context(Receiver())
        for house in built.values():
            house.receiver = await stack.enter_async_context(receiving(house.serve, buffer_bytes=4096))
        installation = Installation(nest, folder, dsn)
        installation.environment["NEW_SECRET"] = NEW_SECRET
        _answer_names(installation.environment, folder)
        settings = {name: _settings(own, built[name].receiver.port) for name, own in houses.items()}
        installation.configure({"good": {"url": good.url(), **USUAL, "deadline_s": 30}, **settings})
        stack.push_async_callback(installation.close)
        replica = await installation.start()
        connection = await stack.enter_async_context(await psycopg.AsyncConnection.connect(dsn, autocommit=True))
        street = Street(replica, connection, built)
        await street.warm()
        yield street


def _answer_names(environment: dict[str, str], folder: Path) -> None:
    table = folder / "names.json"
    table.write_text(json.dumps(NAMES))
    environment["NAMES"] = str(table)
    environment["PYTHONPATH"] = f"{Path(__file__).parent / 'names'}:{environment['PYTHONPATH']}"


def _settings(own: Mapping[str, object], port: int) -> dict[str, object]:
    """A house's settings; `{port}` in its URL is the port it listens on."""
    url = str(own.get("url", "http://127.0.0.1:{port}/hook")).replace("{port}", str(port))
    return {**USUAL, "on_dead": "skip", **own, "url": url}


@pytest.fixture(name="street")
async def _street(shared: Street) -> AsyncIterator[Street]:
    """The street, in good health again after each test."""
    yield shared
    await shared.assert_healthy()
