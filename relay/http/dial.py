"""Makes connections, and only to addresses that were judged: name, egress policy, TCP, proxy, TLS."""

import asyncio
import contextlib
import itertools
import socket
import ssl
from collections.abc import Sequence
from typing import Any

import httpx

from relay.http.connection import Connection, reason
from relay.http.resolver import Resolver
from relay.http.tunnel import Tunnel, credentials
from relay.model import ErrorClass, Fault
from relay.rules import egress

STAGGER_S = 0.25  # RFC 8305, section 8: after this the next address joins in

_PORTS = {"http": 80, "https": 443}


class Dialler:
    """Makes connections to the host of one URL, or to its proxy, under one egress policy.

    With a proxy it is the proxy's address that is judged: it alone is connected to. `context` is for TLS with
    either, None where neither speaks it.
    """

    def __init__(
        self,
        url: httpx.URL,
        proxy: httpx.URL | None,
        *,
        context: ssl.SSLContext | None,
        policy: str | tuple[str, ...],
        resolver: Resolver,
    ) -> None:
        self._url = url
        self._proxy = proxy
        self._context = context
        self._policy = policy
        self._resolver = resolver

    async def connect(self) -> Connection | Fault:
        """A new connection, ready for a request; or the step of making it that failed."""
        near = self._proxy or self._url
        try:
            addresses = await self._resolver.resolve(host(near))
        except OSError as error:
            return Fault(ErrorClass.DNS, f"{host(near)} does not resolve: {reason(error)}")
        refusals = [egress.refusal(address, self._policy) for address in addresses]
        allowed = [address for address, refusal in zip(addresses, refusals, strict=True) if refusal is None]
        if not allowed:
            return Fault(ErrorClass.EGRESS, f"{authority(near)} is refused: {refusals[-1]}")
        try:
            sock = await _first(_interleaved(allowed), near.port or _PORTS[near.scheme])
        except OSError as error:
            return Fault(ErrorClass.CONNECT, f"cannot connect to {authority(near)}: {reason(error)}")
        try:
            if self._proxy is not None and self._url.scheme == "https":
                return await self._through(sock, self._proxy)
            _, connection = await _loop().create_connection(Connection, sock=sock, **self._tls(near))
        except OSError as error:
            return _unspoken(error, authority(near))
        return connection

    async def _through(self, sock: socket.socket, proxy: httpx.URL) -> Connection | Fault:
        _, tunnel = await _loop().create_connection(Tunnel, sock=sock, **self._tls(proxy))
        with contextlib.ExitStack() as cleanup:
            cleanup.callback(tunnel.transport.abort)
            if refusal := await tunnel.open(authority(self._url), credentials(proxy)):
                return Fault(ErrorClass.CONNECT, refusal)
            connection, tls = Connection(), self._tls(self._url)
            try:
                secured = await _loop().start_tls(
                    tunnel.transport, connection, tls["ssl"], server_hostname=tls["server_hostname"]
                )
            except OSError as error:
                return _unspoken(error, authority(self._url))
            if secured is None:  # lost as the handshake ended
                return _unspoken(ConnectionResetError(), authority(self._url))
            connection.connection_made(secured)
            cleanup.pop_all()
            return connection

    def _tls(self, peer: httpx.URL) -> dict[str, Any]:
        if peer.scheme != "https":
            return {}
        return {"ssl": self._context, "server_hostname": host(peer).rstrip(".")}


def host(url: httpx.URL) -> str:
    """The host to look up and to verify: a name in ASCII, or an address without brackets."""
    return egress.canonical_host(url.raw_host.decode("ascii"))


def authority(url: httpx.URL) -> str:
    """HOST:PORT, the port always there."""
    name = url.netloc.decode("ascii")
    return name if url.port is not None else f"{name}:{_PORTS[url.scheme]}"


async def _first(addresses: Sequence[str], port: int) -> socket.socket:
    """The first socket that connects, by Happy Eyeballs (RFC 8305): a dead address costs STAGGER_S, not the attempt."""
    if len(addresses) == 1:
        return await _socket(addresses[0], port)
    left = iter(addresses)
    racing: set[asyncio.Task[socket.socket]] = set()
    fault: BaseException | None = ConnectionError("no address")
    try:
        while True:
            address = next(left, None)
            if address is not None:
                racing.add(asyncio.create_task(_socket(address, port)))
            elif fault is not None and not racing:
                raise fault
            done, _ = await asyncio.wait(
                racing, timeout=STAGGER_S if address else None, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                racing.discard(task)
                fault = task.exception()
                if fault is None:
                    return task.result()
    finally:
        for task in racing:
            task.add_done_callback(_close)
            task.cancel()


async def _socket(address: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.settimeout(0)
        await _loop().sock_connect(sock, (address, port))
    except BaseException:
        sock.close()
        raise
    return sock


def _close(late: asyncio.Task[socket.socket]) -> None:
    if not late.cancelled() and late.exception() is None:
        late.result().close()


def _interleaved(addresses: Sequence[str]) -> list[str]:
    """IPv6 and IPv4 in turn, the family of the best address first (RFC 8305, section 4)."""
    first = [address for address in addresses if (":" in address) == (":" in addresses[0])]
    second = [address for address in addresses if address not in first]
    return [address for pair in itertools.zip_longest(first, second) for address in pair if address is not None]


def _unspoken(error: OSError, peer: str) -> Fault:
    match error:
        case ssl.SSLCertVerificationError():
            return Fault(ErrorClass.TLS, f"{peer} is not trusted: {reason(error)}")
        case ssl.SSLError():
            return Fault(ErrorClass.TLS, f"no TLS with {peer}: {reason(error)}")
        case ConnectionResetError() | ConnectionAbortedError():
            return Fault(ErrorClass.TLS, f"{peer} broke off the TLS handshake")
    return Fault(ErrorClass.CONNECT, f"cannot connect to {peer}: {reason(error)}")


def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()
