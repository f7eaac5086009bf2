"""The road to PostgreSQL, on which a connection can be lost at the worst moment."""

import asyncio
import contextlib
from typing import Literal

from tests.road import Road

# A client's COMMIT, and the server's word that it has happened (CommandComplete), in the protocol of version 3.
_ASKED = b"COMMIT\0"
_HAPPENED = b"C\0\0\0\x0bCOMMIT\0"
# What PgBouncer says where its server dies, an ErrorResponse.
_FIELDS = b"SFATAL\0VFATAL\0C08P01\0Mserver conn crashed?\0\0"
_CRASHED = b"E" + (4 + len(_FIELDS)).to_bytes(4) + _FIELDS

Loss = Literal["question", "answer", "certainty"]


class Proxy(Road):
    """Carries everything but a COMMIT that is to be lost.

    `lose` is armed for one COMMIT: `question` keeps it from the server, `answer` keeps what the server says to it
    from the client, after it has happened; with `certainty` the client hears that, and of an error in the same breath.
    In each case the connection is gone. The first `spared` of them are not lost.
    """

    def __init__(self, to: int) -> None:
        super().__init__(to)
        self.lose: Loss | None = None
        self.spared = 0
        self.lost = 0

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said, saying = await asyncio.open_connection("127.0.0.1", self.to)
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
