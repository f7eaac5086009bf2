"""A way through an HTTP proxy to a receiver that speaks TLS: CONNECT (RFC 9110, section 9.3.6)."""

import asyncio
import base64
import re

import httpx

HEAD_BYTES = 16_384  # of a proxy's answer

_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([0-9]{3})\b")


class Tunnel(asyncio.Protocol):
    """An asyncio protocol for the one exchange with a proxy after which the connection is the receiver's."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self._head = b""
        self._answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def open(self, authority: str, credentials: str) -> str | None:
        """Ask for `authority` (HOST:PORT), with header lines that `credentials` wrote. What went wrong, or None."""
        self.transport.write(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{credentials}\r\n".encode("ascii"))
        found = _STATUS_LINE.match(await self._answered)
        if found is None:
            return "the proxy did not answer to CONNECT"
        return None if found[1].startswith(b"2") else f"the proxy answered {found[1].decode()} to CONNECT"

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # of a stream
        """Connected to the proxy, with TLS if it wants that."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Some of the proxy's answer. Nothing follows its head before we have said hello to the receiver."""
        self._head += data
        if b"\r\n\r\n" in self._head or len(self._head) > HEAD_BYTES:
            self._answer(self._head)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the signature is asyncio's
        """Too soon, or long after the tunnel was opened."""
        self._answer(b"")

    def _answer(self, head: bytes) -> None:
        if not self._answered.done():
            self._answered.set_result(head)


def credentials(proxy: httpx.URL) -> str:
    """The header line that tells a proxy who asks; nothing where its URL names nobody (RFC 7617)."""
    if not proxy.userinfo:
        return ""
    pair = f"{proxy.username}:{proxy.password}".encode()
    return f"Proxy-Authorization: Basic {base64.b64encode(pair).decode()}\r\n"
