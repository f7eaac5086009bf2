"""The road to PostgreSQL, on which a connection can be lost at the worst moment."""

import asyncio
import contextlib
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Self

# A client's COMMIT, and the server's word that it has happened (CommandComplete), in the protocol of version 3.
_ASKED = b"COMMIT\0"
_HAPPENED = b"C\0\0\0\x0bCOMMIT\0"
# What PgBouncer says where its server dies, an ErrorResponse.
_FIELDS = b"SFATAL\0VFATAL\0C08P01\0Mserver conn crashed?\0\0"
_CRASHED = b"E" + (4 + len(_FIELDS)).to_bytes(4) + _FIELDS

Loss = Literal["question", "answer", "certainty"]


@dataclass
class Proxy:
    """A TCP proxy on 127.0.0.1 to the PostgreSQL at `server_port`, as an async context manager.

    `lose` is armed for one COMMIT: `question` keeps it from the server, `answer` keeps what the server says to it
    from the client, after it has happened; with `certainty` the client hears that, and of an error in the same breath.
    In each case the connection is gone. The first `spared` of them are not lost.
    """

    server_port: int
    port: int = 0
    lose: Loss | None = None
    spared: int = 0
    lost: int = 0
    _server: asyncio.Server | None = field(default=None, repr=False)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said, saying = await asyncio.open_connection("127.0.0.1", self.server_port)
        ends = (writer, saying)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._carry(reader, saying, {"question"}, _ASKED, ends))
            group.create_task(self._carry(said, writer, {"answer", "certainty"}, _HAPPENED, ends))

    async def _carry(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        kinds: set[Loss],
        commit: bytes,
        ends: tuple[asyncio.StreamWriter, asyncio.StreamWriter],
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                if self.lose in kinds and commit in data:
                    if self.spared == 0:
                        lost, self.lose = self.lose, None
                        self.lost += 1
                        # The rest of the transaction may be in the same segment, and is not lost with it.
                        writer.write(data[: data.index(commit)])
                        if lost == "question":
                            # The server reads to the end, rolls back and hangs up; then the client is told.
                            writer.write_eof()
                            return
                        if lost == "certainty":
                            writer.write(commit + _CRASHED)
                        break
                    self.spared -= 1
                writer.write(data)
                await writer.drain()
        for end in ends:
            end.close()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
