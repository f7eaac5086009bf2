"""A TCP proxy on 127.0.0.1, for tests of what can happen on the way."""

import asyncio
from types import TracebackType
from typing import Self


class Road:
    """A road to the port `to`, as an async context manager; what happens on it is each one's `_connected`."""

    def __init__(self, to: int) -> None:
        self.to = to
        self.port = 0
        self._server: asyncio.Server | None = None

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carries what a new connection says."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
