"""A receiver that costs next to nothing, as a process: answers 204, and prints what it has seen at each milestone.

    python -m tests.service.sink MILESTONE...

Its first line is its port. Then, for each number of different jobs, one line: the number of requests it took.
"""

import asyncio
import sys

ANSWER = b"HTTP/1.1 204 No Content\r\n\r\n"


class Sink(asyncio.Protocol):
    """One connection; knows just enough HTTP/1.1 for a client that sends Content-Length and Relay-Sequence."""

    seen: set[int] = set()  # noqa: RUF012 - shared by all connections
    requests = 0
    milestones = [int(each) for each in sys.argv[1:]]  # noqa: RUF012

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A new connection."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.buffer = b""

    def data_received(self, data: bytes) -> None:
        """Answer each request that is complete."""
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n") + 4) > 3:
            head = self.buffer[:end].lower()
            end += number(head, b"\r\ncontent-length: ")
            if len(self.buffer) < end:
                return
            self.buffer = self.buffer[end:]
            self.transport.write(ANSWER)
            self.count(number(head, b"\r\nrelay-sequence: "))

    def count(self, sequence: int) -> None:
        """Note one request; say so at a milestone."""
        Sink.requests += 1
        self.seen.add(sequence)
        if self.milestones and len(self.seen) >= self.milestones[0]:
            self.milestones.pop(0)
            print(self.requests, flush=True)  # noqa: T201


def number(head: bytes, name: bytes) -> int:
    """The value of a header that is a number."""
    start = head.index(name) + len(name)
    return int(head[start : head.index(b"\r\n", start)])


async def main() -> None:
    """Serve until killed."""
    server = await asyncio.get_running_loop().create_server(Sink, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
