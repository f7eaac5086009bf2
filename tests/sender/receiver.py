"""Raw TCP receivers: what they write is what arrives, down to the segment."""

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable

from relay.model import Destination

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
UNSENDABLE = 2**24  # bytes; more than all buffers between a sender and a receiver that does not read
HEADERS = [("Content-Type", "application/json"), ("User-Agent", "outbox-relay/test")]


class Connection:
    """One accepted connection. `lost` is set when the sender is seen to have closed it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        self.reader = reader
        self.writer = writer
        self.number = number
        self.lost = asyncio.Event()
        self.read = 0  # bytes that `until_lost` read

    async def head(self) -> bytes:
        return await self.reader.readuntil(b"\r\n\r\n")

    async def request(self) -> tuple[bytes, bytes]:
        head = await self.head()
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        return head, await self.reader.readexactly(length)

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def until_lost(self) -> None:
        """Read until the sender closes, one way or the other."""
        with contextlib.suppress(OSError):
            while chunk := await self.reader.read(65_536):
                self.read += len(chunk)
        self.lost.set()

    def reset(self) -> None:
        """Close with RST."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Handler = Callable[[Connection], Awaitable[None]]


class Receiver:
    """A listening receiver; `connections` has everything it ever accepted."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.connections: list[Connection] = []

    def destination(self, **settings: object) -> Destination:
        values: dict[str, object] = {"url": f"http://127.0.0.1:{self.port}/hook", "deadline_s": 5.0}
        return Destination("receiver", **(values | settings))  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def receiving(
    handler: Handler, *, tls: ssl.SSLContext | None = None, buffer_bytes: int | None = None
) -> AsyncIterator[Receiver]:
    """Run `handler` for each connection; connections are closed when it returns."""
    tasks: set[asyncio.Task[None]] = set()
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    if buffer_bytes is not None:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
    receiver = Receiver(listener.getsockname()[1])

    async def serve(connection: Connection) -> None:
        try:
            await handler(connection)
        except (OSError, asyncio.IncompleteReadError):
            connection.lost.set()
        finally:
            connection.writer.close()

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(reader, writer, len(receiver.connections) + 1)
        receiver.connections.append(connection)
        tasks.add(asyncio.create_task(serve(connection)))

    server = await asyncio.start_server(accepted, sock=listener, ssl=tls, limit=4096)
    try:
        yield receiver
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in receiver.connections:
            connection.writer.transport.abort()
            with contextlib.suppress(OSError):
                await connection.writer.wait_closed()


def answering(*segments: bytes) -> Handler:
    """One request, then the segments, then the end of the connection."""

    async def handler(connection: Connection) -> None:
        await connection.request()
        for segment in segments:
            await connection.write(segment)
            await asyncio.sleep(0.01)  # or the kernel joins the segments

    return handler


async def keep_answering(connection: Connection) -> None:
    """Answer 200 to every request of a connection, as long as it lasts."""
    while True:
        await connection.request()
        await connection.write(OK)
