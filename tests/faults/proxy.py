"""A road on which connections go silent: both ends stay connected, and no byte comes through any more."""

import asyncio
import contextlib
from types import TracebackType
from typing import Self


class Proxy:
    """A TCP proxy on 127.0.0.1 to `port`, as an async context manager.

    Unlike a dropped packet, what a silenced connection is sent is acknowledged, so that neither keepalives nor
    `tcp_user_timeout` find out: as behind a load balancer whose backend is gone, or before a server that is stuck.
    """

    def __init__(self, port: int) -> None:
        self.port = 0
        self.silenced = 0
        self._to = port
        self._server: asyncio.Server | None = None
        self._carrying: set[asyncio.Task[None]] = set()
        self._ends: list[asyncio.StreamWriter] = []

    def silence(self) -> None:
        """Carries nothing more on the connections there are; later ones are not touched."""
        self.silenced += len(self._carrying) // 2
        for task in self._carrying:
            task.cancel()

    def cut(self) -> None:
        """Ends every connection."""
        for end in self._ends:
            end.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._to)
        self._ends += [writer, far_writer]
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            task = asyncio.create_task(_carry(source, sink))
            self._carrying.add(task)
            task.add_done_callback(self._carrying.discard)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.silence()
        self.cut()
        if self._server is not None:
            self._server.close()


async def _carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await source.read(1 << 16):
            sink.write(data)
            await sink.drain()
    sink.close()
