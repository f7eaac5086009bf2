"""A road on which round trips are counted, and connections go silent: both ends stay connected, and no byte comes
through any more."""

import asyncio
import contextlib
from types import TracebackType

from tests.road import Road


class Proxy(Road):
    """Carries everything, until it is told to carry nothing more.

    Unlike a dropped packet, what a silenced connection is sent is acknowledged, so that neither keepalives nor
    `tcp_user_timeout` find out: as behind a load balancer whose backend is gone, or before a server that is stuck.
    """

    def __init__(self, to: int) -> None:
        super().__init__(to)
        self.silenced = 0
        #: How often something was sent there after something had come back, on all connections together.
        self.round_trips = 0
        self._answered = True
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
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.to)
        self._ends += [writer, far_writer]
        for source, sink, there in ((reader, far_writer, True), (far_reader, writer, False)):
            task = asyncio.create_task(self._carry(source, sink, there=there))
            self._carrying.add(task)
            task.add_done_callback(self._carrying.discard)

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, there: bool) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(1 << 16):
                self.round_trips += there and self._answered
                self._answered = not there
                sink.write(data)
                await sink.drain()
        sink.close()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.silence()
        self.cut()
        await super().__aexit__(kind, error, trace)
