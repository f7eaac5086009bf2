"""HTTP, and nothing else speaks it: one POST of stored bytes, one bounded answer.

httpx gives the words (request, response, errors); `_Transport` carries them over aiohttp, whose pool
survives cancellation and costs a fraction of httpx's own.
"""

import asyncio
import contextvars
import functools
import math
import os
import socket
import ssl
import zlib
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

import aiohttp
import httpx
import yarl
from aiohttp.abc import AbstractResolver, AbstractStreamWriter, ResolveResult

from relay.model import Answer, Destination, ErrorClass, Fault, Result, Tls
from relay.rules import egress

ANSWER_LIMIT = 4096  # bytes of an answer's body that are read, and kept after decompression
IDLE_S = 30.0  # a kept connection without work is closed after this
DNS_THREADS = 32  # a name that hangs costs one thread, since look-ups of one name are shared

CONNECTING = "while connecting"
SENDING = "while sending the request"

_url = functools.lru_cache(1024)(httpx.URL)

Route = tuple[Tls, str | None, str | tuple[str, ...]]


class Sender:
    """Sends attempts for all destinations of a replica; an async context manager, used on one event loop.

    Any number of `send` calls may run at once: how many is the dispatcher's business. Destinations with
    equal TLS files, proxy and egress policy share connections. TLS files are read at first use.
    """

    def __init__(self) -> None:
        self._resolver = _Resolver()
        self._transports: dict[Route, _Transport] = {}

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
        trail = _Trail()
        _TRAIL.set(trail)
        try:
            async with asyncio.timeout(destination.deadline_s):
                transport = self._transport(destination)
                request = httpx.Request(
                    "POST",
                    _url(destination.url),
                    headers=headers,
                    stream=httpx.ByteStream(body),
                    extensions={"timeout": {"connect": destination.connect_timeout_s}},
                )
                return await _answer(await transport.handle_async_request(request))
        except TimeoutError:
            detail = f"no complete answer within {destination.deadline_s} s, given up {trail.phase}"
            return Fault(ErrorClass.DEADLINE, detail)
        except _NoAnswerError as error:
            return error.fault

    def _transport(self, destination: Destination) -> "_Transport":
        route = (destination.tls, destination.proxy, destination.egress)
        if route not in self._transports:
            self._transports[route] = _Transport(route, self._resolver)
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


class _NoAnswerError(httpx.TransportError):
    def __init__(self, error_class: ErrorClass, detail: str) -> None:
        super().__init__(detail)
        self.fault = Fault(error_class, detail)


class _Trail:
    """How far one attempt got; found again in callbacks that aiohttp gives no context."""

    __slots__ = ("dialled", "phase", "refused", "transport")

    def __init__(self) -> None:
        self.phase = CONNECTING
        self.dialled = False  # a socket was made: the connection is not a reused one
        self.refused: str | None = None
        self.transport: asyncio.WriteTransport | None = None

    def abort(self) -> None:
        """Close at once. A plain close would wait for a receiver that does not read, for ever."""
        if self.transport is not None:
            self.transport.abort()


_TRAIL: contextvars.ContextVar[_Trail] = contextvars.ContextVar("_TRAIL")


class _Content(aiohttp.BytesPayload):
    """A request's body that notes when it is being sent, and on which connection."""

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        trail = _TRAIL.get()
        trail.transport = writer.transport
        trail.phase = SENDING
        await super().write_with_length(writer, content_length)
        trail.phase = "while waiting for the answer"


class _Stream(httpx.AsyncByteStream):
    """An answer's body, undecoded, as it arrives."""

    def __init__(self, response: aiohttp.ClientResponse, trail: _Trail) -> None:
        self._response = response
        self._trail = trail
        self._lost: asyncio.Future[None] | None = None
        # At the end of a body aiohttp has already taken the connection back into its pool.
        if (connection := response.connection) is not None and connection.protocol is not None:
            self._lost = connection.protocol.closed
        if self._lost is not None:
            self._lost.add_done_callback(self._end)
            self._lost.remove_done_callback(_seen)  # a kept connection has many answers and needs one
            self._lost.add_done_callback(_seen)

    def _end(self, _: asyncio.Future[None]) -> None:
        content = self._response.content
        if not content.is_eof() and content.exception() is None:
            # aiohttp tells a body's reader of every end but this: framing that it can't parse.
            content.set_exception(_NoAnswerError(ErrorClass.PROTOCOL, "the answer's body is not HTTP/1.1"))

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await self._response.content.readany()
        except (aiohttp.ClientError, OSError) as error:
            raise httpx.ReadError("the answer's body was cut") from error
        if not chunk:
            raise StopAsyncIteration
        return chunk

    async def aclose(self) -> None:
        if self._lost is not None:
            self._lost.remove_done_callback(self._end)
        if self._response.connection is not None:
            self._trail.abort()
            self._response.close()


def _seen(lost: asyncio.Future[None]) -> None:
    lost.exception()  # or asyncio complains that nobody looked


class _Resolver(AbstractResolver):
    """`getaddrinfo` in threads of its own: asyncio's few are shared with everything else."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(DNS_THREADS, thread_name_prefix="dns")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        # As bytes, or the idna codec raises UnicodeError for a label of 64 letters.
        name = host.encode("ascii")
        found = await asyncio.get_running_loop().run_in_executor(
            self._threads, socket.getaddrinfo, name, port, family, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG
        )
        return [
            ResolveResult(hostname=host, host=str(address[0]), port=port, family=kind, proto=proto, flags=0)
            for kind, _, proto, _, address in found
        ]

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class _Transport(httpx.AsyncBaseTransport):
    """Connections of all destinations that agree on TLS files, proxy and egress policy."""

    def __init__(self, route: Route, resolver: _Resolver) -> None:
        tls, self._proxy, self._policy = route
        context = _context(tls)
        self._kept = self._session(context, resolver, keep=True)
        self._fresh = self._session(context, resolver, keep=False)

    def _session(self, context: ssl.SSLContext, resolver: _Resolver, *, keep: bool) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            ssl=context,
            resolver=resolver,
            socket_factory=self._socket,
            limit=0,
            force_close=not keep,
            keepalive_timeout=IDLE_S if keep else None,
        )
        return aiohttp.ClientSession(
            connector=connector,
            request_class=_Request,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            read_bufsize=ANSWER_LIMIT,
            trust_env=False,
        )

    def _socket(self, found: aiohttp.AddrInfoType) -> socket.socket:
        # Here and not in the resolver, which aiohttp skips for addresses written as numbers. What is checked
        # is what is connected to: with a proxy, the proxy.
        family, kind, proto, _, address = found
        trail = _TRAIL.get()
        if refusal := egress.refusal(str(address[0]), self._policy):
            trail.refused = refusal
            raise OSError(refusal)
        trail.dialled = True
        return socket.socket(family, kind, proto)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request; anything but an answer's complete head raises `_NoAnswerError`."""
        trail = _TRAIL.get()
        try:
            try:
                response = await self._post(self._kept, request, trail)
            except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
                if trail.dialled or trail.phase == CONNECTING or not _unanswered(error):
                    raise
                # A kept connection died without an answer: most likely the receiver's keep-alive ran out as
                # we wrote. Whether it read the request can't be known, so this is no proof that nothing was
                # sent; repeating is safe because the idempotency key is the same (RFC 9110, section 9.2.2).
                trail.phase = CONNECTING
                response = await self._post(self._fresh, request, trail)
        except (aiohttp.ClientError, OSError) as error:
            raise _NoAnswerError(*_fault(error, trail)) from error
        trail.phase = "while reading the answer's body"
        return httpx.Response(response.status, headers=list(response.raw_headers), stream=_Stream(response, trail))

    async def _post(
        self, session: aiohttp.ClientSession, request: httpx.Request, trail: _Trail
    ) -> aiohttp.ClientResponse:
        connect_s = request.extensions["timeout"]["connect"]
        try:
            return await session.request(
                "POST",
                yarl.URL(str(request.url), encoded=True),
                headers=[(name.decode("ascii"), value.decode("ascii")) for name, value in request.headers.raw],
                data=_Content(request.read()),
                allow_redirects=False,
                proxy=self._proxy,
                timeout=aiohttp.ClientTimeout(total=None, connect=connect_s, ceil_threshold=math.inf),
            )
        except BaseException:
            trail.abort()
            raise

    async def aclose(self) -> None:
        await self._kept.close()
        await self._fresh.close()


class _Request(aiohttp.ClientRequest):
    """Without aiohttp's own `Accept` headers: the receiver is to get what the attempt says."""

    DEFAULT_HEADERS = {}  # noqa: RUF012  # as the base class has it


def _context(tls: Tls) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=tls.ca_file)
        if tls.client_certificate_file is not None:
            context.load_cert_chain(tls.client_certificate_file, tls.client_key_file)
    except OSError as error:
        files = ", ".join(filter(None, (tls.ca_file, tls.client_certificate_file, tls.client_key_file)))
        raise _NoAnswerError(ErrorClass.TLS, f"cannot use the TLS files {files}: {_reason(error)}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_3 if tls.minimum_version == "1.3" else ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def _unanswered(error: aiohttp.ClientError) -> bool:
    # aiohttp puts a half-read head where its sentence is otherwise.
    return not isinstance(error, aiohttp.ServerDisconnectedError) or isinstance(error.message, str)


def _fault(error: Exception, trail: _Trail) -> tuple[ErrorClass, str]:
    """The one error map. Sentences are ours: aiohttp's name the whole URL, and a URL can be a secret."""
    match error:
        case aiohttp.ClientConnectorError():
            return _unconnected(error, f"{error.host}:{error.port}", trail)
        case aiohttp.ConnectionTimeoutError():
            return ErrorClass.CONNECT, "no connection within the connect timeout (name, TCP and TLS)"
        case aiohttp.InvalidURL():
            return ErrorClass.EGRESS, "the URL's host is not a canonical address"
        case aiohttp.ClientHttpProxyError():
            return ErrorClass.CONNECT, f"the proxy answered {error.status} to CONNECT"
        case aiohttp.ClientResponseError():
            return ErrorClass.PROTOCOL, f"the answer is not HTTP/1.1: {' '.join(error.message.split())[:200]}"
    if isinstance(error.__cause__, ssl.SSLError):
        kind = ErrorClass.TLS
    else:
        kind = ErrorClass.WRITE if trail.phase == SENDING else ErrorClass.READ
    return kind, f"the connection broke {trail.phase}: {_reason(error.__cause__)}"


def _unconnected(error: aiohttp.ClientConnectorError, peer: str, trail: _Trail) -> tuple[ErrorClass, str]:
    reason = _reason(error.os_error)
    match error:
        case aiohttp.ClientConnectorDNSError():
            return ErrorClass.DNS, f"{error.host} does not resolve: {reason}"
        case aiohttp.ClientConnectorCertificateError():
            return ErrorClass.TLS, f"{peer} is not trusted: {reason}"
        case aiohttp.ClientConnectorSSLError():
            return ErrorClass.TLS, f"no TLS with {peer}: {reason}"
    if isinstance(error.os_error, ConnectionResetError | ConnectionAbortedError):
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
