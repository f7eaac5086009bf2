"""Ports nobody answers on, names that resolve to anything, and the houses found there."""

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncIterator, Iterator, Mapping

from tests.receivers.street import Houses
from tests.sender.receiver import Connection, Handler

# What each name resolves to, in turn; see names/sitecustomize.py.
NAMES: dict[str, list[list[str]]] = {
    "nothing.test": [[]],
    "healing.test": [[], [], ["127.0.0.1"]],
    "dual.test": [["::1", "127.0.0.1"]],
    "private.test": [["10.255.255.1", "127.0.0.1", "192.168.0.1"]],
    "metadata.test": [["169.254.169.254"]],
    "mixed.test": [["169.254.169.254", "10.0.0.1", "127.0.0.1"]],
    "moving.test": [["127.0.0.1"], ["127.0.0.2"]],
    "xn--empfnger-3za.test": [["127.0.0.1"]],
}


def has_ipv6() -> bool:
    """Whether this machine has ::1."""
    with contextlib.suppress(OSError), socket.create_server(("::1", 0), family=socket.AF_INET6):
        return True
    return False


def one_port(*hosts: str) -> list[socket.socket]:
    """A listening socket on each of these addresses, all with the same port number."""
    while True:
        with contextlib.ExitStack() as stack:
            sockets = [stack.enter_context(_listening(hosts[0], 0))]
            try:
                sockets += [stack.enter_context(_listening(host, port_of(sockets[0]))) for host in hosts[1:]]
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                continue
            stack.pop_all()
            return sockets


def port_of(listener: socket.socket) -> int:
    """Its port."""
    port: int = listener.getsockname()[1]
    return port


@contextlib.contextmanager
def filtering(listener: socket.socket) -> Iterator[None]:
    """Let nobody answer a SYN, as behind a firewall that drops: the queue is full."""
    listener.listen(0)
    with socket.socket(listener.family) as only_guest:
        only_guest.connect(listener.getsockname())
        yield


@contextlib.asynccontextmanager
async def serving(handler: Handler, *listeners: socket.socket) -> AsyncIterator[None]:
    """Run `handler` for each connection to these sockets, which stay open afterwards."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await handler(Connection(reader, writer, 0))
        writer.close()

    async with contextlib.AsyncExitStack() as stack:
        for listener in listeners:
            await stack.enter_async_context(await asyncio.start_server(serve, sock=listener.dup()))
        yield


@contextlib.contextmanager
def closed() -> Iterator[int]:
    """A port that refuses: bound by us, so that nobody else gets it, and not listening."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def named(ports: Mapping[str, int]) -> Houses:
    """A house for each kind of name; `ports` of those that do not listen on their own."""
    return {
        "nothing": _at("nothing.test"),
        "missing": _at("no-such-host.invalid"),
        "dual": _at("dual.test", ports["dual"]),
        "private": _at("private.test", egress="public"),
        "metadata": _at("metadata.test"),
        "mixed": _at("mixed.test", egress=["127.0.0.1/32"]),
        "moving": _at("moving.test", ports["moving"]),
        "healing": _at("healing.test"),
        "literal": _at("[::1]", ports["literal"]),
        "umlaut": _at("empfänger.test"),
    }


def _at(host: str, port: object = "{port}", **settings: object) -> dict[str, object]:
    patient = {"insecure_http": True, "connect_timeout_s": 10, "deadline_s": 15}
    return {"url": f"http://{host}:{port}/hook", **patient, **settings}


def _listening(host: str, port: int) -> socket.socket:
    return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
