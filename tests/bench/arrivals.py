"""A receiver within the benchmark's own process: one clock tells when a job was committed and when it arrived."""

import asyncio
import time
from types import TracebackType
from typing import Self

ANSWER = b"HTTP/1.1 204 No Content\r\n\r\n"
HANGING = "/hanging"


class Arrivals:
    """An async context manager. `at_s` has when each job (by its id) arrived first, by the monotonic clock.

    What is sent to HANGING is never answered while `hang` is set, and is counted in `hung`.
    """

    def __init__(self) -> None:
        self.at_s: dict[int, float] = {}
        self.hang = False
        self.hung = 0

    def url(self, path: str) -> str:
        """Where `path` is served."""
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}{path}"

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", 0, backlog=1024)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()


class _Connection(asyncio.Protocol):
    """Knows just enough HTTP/1.1 for a client that sends Content-Length and Relay-Sequence."""

    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals = arrivals
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        now_s = time.monotonic()
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n") + 4) > 3:
            head = self._buffer[:end].lower()
            end += _number(head, b"content-length")
            if len(self._buffer) < end:
                return
            self._buffer = self._buffer[end:]
            self._arrivals.at_s.setdefault(_number(head, b"relay-sequence"), now_s)
            if self._arrivals.hang and head.startswith(b"post " + HANGING.encode()):
                self._arrivals.hung += 1
            else:
                self._transport.write(ANSWER)


def _number(head: bytes, name: bytes) -> int:
    start = head.index(b"\r\n" + name + b": ") + len(name) + 4
    return int(head[start : head.index(b"\r\n", start)])
