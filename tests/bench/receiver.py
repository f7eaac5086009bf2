"""The receiver of every side: answers each POST with 204 after `delay_ms`, at a fraction of any client's cost.

It counts what arrives by Idempotency-Key, so that a side that delivers less, or twice, cannot win. `GET /` answers
with the counts and forgets them; `GET /count` only answers.
"""

import asyncio
import json
import sys

ANSWER = b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"


class Counter:
    """What has arrived since it was last asked."""

    def __init__(self) -> None:
        self.requests = 0
        self.keys: set[bytes] = set()

    def report(self, *, forget: bool) -> bytes:
        body = json.dumps({"requests": self.requests, "keys": len(self.keys)}).encode()
        if forget:
            self.requests, self.keys = 0, set()
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


class Connection(asyncio.Protocol):
    """One kept connection; it reads just enough HTTP/1.1 for well-behaved clients."""

    def __init__(self, counter: Counter, delay_s: float) -> None:
        self._counter = counter
        self._delay_s = delay_s
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (head_end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._buffer[:head_end]).lower()
            length = int(_header(head, b"content-length") or 0)
            if len(self._buffer) < head_end + 4 + length:
                return
            del self._buffer[: head_end + 4 + length]
            if head.startswith(b"get"):
                self._transport.write(self._counter.report(forget=not head.startswith(b"get /count")))
                continue
            self._counter.requests += 1
            self._counter.keys.add(_header(head, b"idempotency-key"))
            if self._delay_s:
                asyncio.get_running_loop().call_later(self._delay_s, self._transport.write, ANSWER)
            else:
                self._transport.write(ANSWER)


def _header(head: bytes, name: bytes) -> bytes:
    start = head.find(b"\r\n" + name + b":")
    return head[start + len(name) + 3 :].split(b"\r\n", 1)[0].strip() if start >= 0 else b""


async def main(delay_ms: float) -> None:
    """Serves until its standard input ends; the first line of output is the port."""
    counter, loop = Counter(), asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(counter, delay_ms / 1000), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1])))
