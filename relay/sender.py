"""HTTP, and nothing else speaks it: one POST of stored bytes, one bounded answer or the fault that came instead."""

import asyncio
import functools
import os
import ssl
import zlib
from types import TracebackType
from typing import Self

import aiohttp
import httpx

from relay.model import Answer, Destination, ErrorClass, Fault, Result, Tls
from relay.transport import SENDING, Resolver, Trail, Transport

ANSWER_LIMIT = 4096  # bytes of an answer's body that are read, and kept after decompression

_url = functools.lru_cache(1024)(httpx.URL)
_UNCANONICAL = ErrorClass.EGRESS, "the URL's host is not a canonical address"

Route = tuple[Tls, str | None, str | tuple[str, ...]]


class Sender:
    """Sends attempts for all destinations of a replica; an async context manager, used on one event loop.

    Any number of `send` calls may run at once: how many is the dispatcher's business. Destinations with
    equal TLS files, proxy and egress policy share connections. TLS files are read at first use.
    """

    def __init__(self) -> None:
        self._resolver = Resolver()
        self._transports: dict[Route, Transport] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for transport in self._transports.values():
            await transport.aclose()
        await self._resolver.close()

    async def send(self, destination: Destination, headers: list[tuple[str, str]], body: bytes) -> Result:
        """POST `body`, byte for byte, with `headers` (ASCII), `Host` and `Content-Length`. Follow nothing.

        Returns the `Answer` once its head is complete and its body has ended, was cut, or reached 4 KiB; or
        a `Fault` for whatever the network, the receiver or a policy did instead, within
        `destination.deadline_s` seconds from DNS to the last byte read. Raises only for our own bugs; a
        cancelled call closes its connection and lets the cancellation through.
        """
        trail = Trail()
        try:
            async with asyncio.timeout(destination.deadline_s):
                return await self._exchange(destination, headers, body, trail)
        except TimeoutError:
            detail = f"no complete answer within {destination.deadline_s} s, given up {trail.phase}"
            return Fault(ErrorClass.DEADLINE, detail)

    async def _exchange(
        self, destination: Destination, headers: list[tuple[str, str]], body: bytes, trail: Trail
    ) -> Result:
        try:
            transport = self._transport(destination)
        except OSError as error:
            return _unusable(destination.tls, error)
        try:
            url = _url(destination.url)
        except httpx.InvalidURL:
            return Fault(*_UNCANONICAL)
        request = httpx.Request(
            "POST",
            url,
            headers=headers,
            stream=httpx.ByteStream(body),
            extensions={"timeout": {"connect": destination.connect_timeout_s}, "trail": trail},
        )
        try:
            return await _answer(await transport.handle_async_request(request))
        except httpx.RemoteProtocolError as error:
            return Fault(ErrorClass.PROTOCOL, str(error))
        except (aiohttp.ClientError, OSError) as error:
            return Fault(*_fault(error, trail, secure=url.scheme == "https"))

    def _transport(self, destination: Destination) -> Transport:
        route = (destination.tls, destination.proxy, destination.egress)
        if route not in self._transports:
            tls, proxy, policy = route
            self._transports[route] = Transport(_context(tls), proxy, policy, self._resolver)
        return self._transports[route]


async def _answer(response: httpx.Response) -> Answer:
    body = b""
    try:
        async for chunk in response.stream:  # type: ignore[union-attr]  # ours is asynchronous
            body += chunk
            if len(body) >= ANSWER_LIMIT:
                break
    except httpx.ReadError:
        # Cut. The status line and all headers arrived, so the receiver has answered; its body is only
        # evidence for a person. Repeating what was answered 2xx would turn a bad network into duplicates.
        pass
    finally:
        await response.aclose()
    headers = {name.lower().decode("latin-1"): text.decode("latin-1") for name, text in response.headers.raw}
    body = _decoded(body[:ANSWER_LIMIT], headers.get("content-encoding", ""))
    return Answer(response.status_code, headers, body)


def _decoded(body: bytes, encoding: str) -> bytes:
    if encoding.lower() not in {"gzip", "x-gzip", "deflate"}:
        return body
    try:
        # 32 lets zlib tell gzip from deflate; the limit is on what comes out, so a bomb stays small.
        return zlib.decompressobj(32 + zlib.MAX_WBITS).decompress(body, ANSWER_LIMIT)
    except zlib.error:
        return body


def _context(tls: Tls) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=tls.ca_file)
    if tls.client_certificate_file is not None:
        context.load_cert_chain(tls.client_certificate_file, tls.client_key_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_3 if tls.minimum_version == "1.3" else ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def _unusable(tls: Tls, error: OSError) -> Fault:
    files = ", ".join(filter(None, (tls.ca_file, tls.client_certificate_file, tls.client_key_file)))
    return Fault(ErrorClass.TLS, f"cannot use the TLS files {files}: {_reason(error)}")


def _fault(error: Exception, trail: Trail, *, secure: bool) -> tuple[ErrorClass, str]:
    """The one error map. Sentences are ours: aiohttp's name the whole URL, and a URL can be a secret."""
    match error:
        case aiohttp.ClientConnectorError():
            return _unconnected(error, f"{error.host}:{error.port}", trail, secure=secure)
        case aiohttp.ConnectionTimeoutError():
            return ErrorClass.CONNECT, "no connection within the connect timeout (name, TCP and TLS)"
        case aiohttp.InvalidURL():
            return _UNCANONICAL
        case aiohttp.ClientHttpProxyError():
            return ErrorClass.CONNECT, f"the proxy answered {error.status} to CONNECT"
        case aiohttp.ClientResponseError():
            return ErrorClass.PROTOCOL, f"the answer is not HTTP/1.1: {' '.join(error.message.split())[:200]}"
    if isinstance(error.__cause__, ssl.SSLError):
        kind = ErrorClass.TLS
    else:
        kind = ErrorClass.WRITE if trail.phase == SENDING else ErrorClass.READ
    return kind, f"the connection broke {trail.phase}: {_reason(error.__cause__)}"


def _unconnected(
    error: aiohttp.ClientConnectorError, peer: str, trail: Trail, *, secure: bool
) -> tuple[ErrorClass, str]:
    reason = _reason(error.os_error)
    match error:
        case aiohttp.ClientConnectorDNSError():
            return ErrorClass.DNS, f"{error.host} does not resolve: {reason}"
        case aiohttp.ClientConnectorCertificateError():
            return ErrorClass.TLS, f"{peer} is not trusted: {reason}"
        case aiohttp.ClientConnectorSSLError():
            return ErrorClass.TLS, f"no TLS with {peer}: {reason}"
    if secure and isinstance(error.os_error, ConnectionResetError | ConnectionAbortedError):
        # Before the request is written only a TLS handshake has a connection that can be reset.
        return ErrorClass.TLS, f"{peer} broke off the TLS handshake"
    if trail.refused and not trail.dialled:
        return ErrorClass.EGRESS, f"{peer} is refused: {trail.refused}"
    return ErrorClass.CONNECT, f"cannot connect to {peer}: {reason}"


def _reason(error: BaseException | None) -> str:
    match error:
        case ssl.SSLCertVerificationError():
            return error.verify_message
        case ssl.SSLError():
            return error.reason or str(error)
        case OSError(errno=int(number)) if number > 0:
            return os.strerror(number)
        case OSError():
            return error.strerror or str(error)
    return "closed by the receiver"
