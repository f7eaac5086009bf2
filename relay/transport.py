"""One HTTP exchange over aiohttp, in httpx's words.

httpx gives the types (request, response, stream); aiohttp's pool carries them, because it survives cancellation
and costs a fraction of httpx's own.
"""

import asyncio
import contextvars
import math
import socket
import ssl
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import aiohttp
import httpx
import yarl
from aiohttp.abc import AbstractResolver, AbstractStreamWriter, ResolveResult

from relay.rules import egress

BUFFER_BYTES = 4096  # of an answer's body that may wait unread
IDLE_S = 30.0  # a kept connection without work is closed after this
DNS_THREADS = 32  # a name that hangs costs one thread, since look-ups of one name are shared

CONNECTING = "while connecting"
SENDING = "while sending the request"


class Trail:
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


_TRAIL: contextvars.ContextVar[Trail] = contextvars.ContextVar("_TRAIL")


class Resolver(AbstractResolver):
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


class Transport(httpx.AsyncBaseTransport):
    """Connections of all destinations that agree on TLS, proxy and egress policy (as in `relay.rules.egress`).

    A request has `extensions["timeout"]["connect"]` in seconds and `extensions["trail"]`, a `Trail`.
    """

    def __init__(
        self, context: ssl.SSLContext, proxy: str | None, policy: str | tuple[str, ...], resolver: Resolver
    ) -> None:
        self._proxy = proxy
        self._policy = policy
        self._kept = self._session(context, resolver, keep=True)
        self._fresh = self._session(context, resolver, keep=False)

    def _session(self, context: ssl.SSLContext, resolver: Resolver, *, keep: bool) -> aiohttp.ClientSession:
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
            read_bufsize=BUFFER_BYTES,
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
        """Return once an answer's head is complete; anything else raises aiohttp's error, or OSError.

        Its stream raises `httpx.ReadError` for a body that was cut, `RemoteProtocolError` for one that is no HTTP.
        """
        trail: Trail = request.extensions["trail"]
        _TRAIL.set(trail)
        try:
            response = await self._post(self._kept, request)
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
            if trail.dialled or trail.phase == CONNECTING or not _unanswered(error):
                raise
            # A kept connection died without an answer: most likely the receiver's keep-alive ran out as
            # we wrote. Whether it read the request can't be known, so this is no proof that nothing was
            # sent; repeating is safe because the idempotency key is the same (RFC 9110, section 9.2.2).
            trail.phase = CONNECTING
            response = await self._post(self._fresh, request)
        trail.phase = "while reading the answer's body"
        return httpx.Response(response.status, headers=list(response.raw_headers), stream=_Stream(response, trail))

    async def _post(self, session: aiohttp.ClientSession, request: httpx.Request) -> aiohttp.ClientResponse:
        try:
            return await session.request(
                "POST",
                yarl.URL(str(request.url), encoded=True),
                headers=[(name.decode("ascii"), value.decode("ascii")) for name, value in request.headers.raw],
                data=_Content(request.read()),
                allow_redirects=False,
                proxy=self._proxy,
                timeout=aiohttp.ClientTimeout(total=None, ceil_threshold=math.inf, **request.extensions["timeout"]),
            )
        except BaseException:
            _TRAIL.get().abort()
            raise

    async def aclose(self) -> None:
        await self._kept.close()
        await self._fresh.close()


class _Request(aiohttp.ClientRequest):
    """Without aiohttp's own `Accept` headers: the receiver is to get what the attempt says."""

    DEFAULT_HEADERS = {}  # noqa: RUF012  # as the base class has it


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

    def __init__(self, response: aiohttp.ClientResponse, trail: Trail) -> None:
        self._response = response
        self._trail = trail
        # At the end of a body aiohttp has already taken the connection back into its pool.
        protocol = response.connection and response.connection.protocol
        self._lost = None if protocol is None else protocol.closed
        if self._lost is not None:
            self._lost.add_done_callback(self._end)
            self._lost.remove_done_callback(_seen)  # a kept connection has many answers and needs one
            self._lost.add_done_callback(_seen)

    def _end(self, _: asyncio.Future[None]) -> None:
        content = self._response.content
        if not content.is_eof() and content.exception() is None:
            # aiohttp tells a body's reader of every end but this: framing that it can't parse.
            content.set_exception(httpx.RemoteProtocolError("the answer's body is not HTTP/1.1"))

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


def _unanswered(error: aiohttp.ClientError) -> bool:
    # aiohttp puts a half-read head where its sentence is otherwise. It tells of none after a reset, and of no 1xx.
    return not isinstance(error, aiohttp.ServerDisconnectedError) or isinstance(error.message, str)
