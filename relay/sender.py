"""HTTP, and nothing else speaks it: one POST of stored bytes, one bounded answer or the fault that came instead."""

import asyncio
import contextlib
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import httpx

from relay.errors import ConfigError
from relay.http.connection import reason
from relay.http.dial import Dialler
from relay.http.resolver import Resolver
from relay.http.transport import Transport
from relay.http.tunnel import credentials
from relay.model import Destination, ErrorClass, Fault, Result, Tls

Route = tuple[str, Tls, str | None, str | tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What is the same for every attempt: `head` is the request line and the headers that frame no body."""

    destination: Destination
    transport: Transport
    head: str


class Sender:
    """Sends attempts for all destinations of a replica; an async context manager, used on one event loop.

    Any number of `send` calls may run at once: how many is the dispatcher's business. Destinations with equal
    scheme, host, port, TLS files, proxy and egress policy share connections. TLS files are read at first use.
    A file that has changed makes another `Tls`, and with it other connections.
    """

    def __init__(self) -> None:
        self._resolver = Resolver()
        self._contexts: dict[Tls, ssl.SSLContext] = {}
        self._transports: dict[Route, Transport] = {}
        self._prepared: dict[str, _Prepared] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for transport in self._transports.values():
            transport.close()

    def read(self, destinations: Iterable[Destination]) -> None:
        """Reads the TLS files of these destinations that were not read before; for any thread.

        Raises ConfigError, with a line for each destination whose files cannot be used.
        """
        faults = []
        for destination in destinations:
            tls = destination.tls
            try:
                if tls.contents and tls not in self._contexts:
                    self._contexts[tls] = _context(tls)
            except OSError as error:
                faults.append(f"destinations.{destination.name}.tls: {_unusable(tls, error).detail}")
        if faults:
            raise ConfigError("\n".join(faults))

    def configure(self, destinations: Iterable[Destination]) -> None:
        """Keeps what these destinations use, and closes the other connections when what is in flight has ended."""
        routes, known = set(), set()
        for destination in destinations:
            known.add(destination.tls)
            with contextlib.suppress(httpx.InvalidURL):
                routes.add(_route(destination, httpx.URL(destination.url)))
        self._prepared.clear()
        self._contexts = {tls: context for tls, context in self._contexts.items() if tls in known}
        for route in self._transports.keys() - routes:
            self._transports.pop(route).close()

    async def send(self, destination: Destination, headers: list[tuple[str, str]], body: bytes) -> Result:
        """POST `body`, byte for byte, with `headers` (ASCII), `Host` and `Content-Length`. Follow nothing.

        Returns the `Answer` once its head is complete and its body has ended, was cut, or reached 4 KiB; or
        a `Fault` for whatever the network, the receiver or a policy did instead, within
        `destination.deadline_s` seconds from DNS to the last byte read. Raises only for our own bugs; a
        cancelled call closes its connection and lets the cancellation through.
        """
        until_s = asyncio.get_running_loop().time() + destination.deadline_s
        prepared = self._prepared.get(destination.name)
        if prepared is None or prepared.destination is not destination:
            try:
                prepared = self._prepared[destination.name] = self._prepare(destination)
            except httpx.InvalidURL:
                return Fault(ErrorClass.EGRESS, "the URL's host is not a canonical address")
            except OSError as error:
                return _unusable(destination.tls, error)
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
        head = f"{prepared.head}{lines}Content-Length: {len(body)}\r\n\r\n".encode("ascii")
        try:
            return await prepared.transport.post(
                head, body, connect_timeout_s=destination.connect_timeout_s, until_s=until_s
            )
        except TimeoutError as late:
            detail = f"no complete answer within {destination.deadline_s} s, given up {late}"
            return Fault(ErrorClass.DEADLINE, detail)

    def _prepare(self, destination: Destination) -> _Prepared:
        url = httpx.URL(destination.url)
        proxy = None if destination.proxy is None else httpx.URL(destination.proxy)
        netloc, target, asking = url.netloc.decode("ascii"), url.raw_path.decode("ascii"), ""
        if proxy is not None and url.scheme == "http":
            target, asking = f"http://{netloc}{target}", credentials(proxy)
        head = f"POST {target} HTTP/1.1\r\nHost: {netloc}\r\n{asking}"
        return _Prepared(destination, self._transport(destination, url, proxy), head)

    def _transport(self, destination: Destination, url: httpx.URL, proxy: httpx.URL | None) -> Transport:
        tls, policy = destination.tls, destination.egress
        route = _route(destination, url)
        if route not in self._transports:
            secure = url.scheme == "https" or (proxy is not None and proxy.scheme == "https")
            if secure and tls not in self._contexts:
                self._contexts[tls] = _context(tls)
            context = self._contexts[tls] if secure else None
            dialler = Dialler(url, proxy, context=context, policy=policy, resolver=self._resolver)
            self._transports[route] = Transport(dialler)
        return self._transports[route]


def _route(destination: Destination, url: httpx.URL) -> Route:
    origin = f"{url.scheme}://{url.netloc.decode('ascii')}"
    return origin, destination.tls, destination.proxy, destination.egress


def _context(tls: Tls) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=tls.ca_file)
    if tls.client_certificate_file is not None:
        context.load_cert_chain(tls.client_certificate_file, tls.client_key_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_3 if tls.minimum_version == "1.3" else ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def _unusable(tls: Tls, error: OSError) -> Fault:
    files = ", ".join(filter(None, (tls.ca_file, tls.client_certificate_file, tls.client_key_file)))
    return Fault(ErrorClass.TLS, f"cannot use the TLS files {files}: {reason(error)}")
