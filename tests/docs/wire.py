"""One delivery as its bytes: what really arrives at a receiver's socket."""

import asyncio
import random
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from relay.deliver import Deliverer
from relay.model import Destination, Job
from relay.sender import Sender

JOB = Job(
    id=7,
    destination="billing",
    topic="order.paid",
    entity_key="order-42",
    idempotency_key="37adcfc1-6cc4-474f-951e-b41cddb95c2d",
    content_type="application/json",
    body='{"total":  19.990, "name": "Müller", "a": 1, "a": 2}'.encode(),
    headers={},
    attempts=1,
    claims=1,
)


@dataclass(frozen=True)
class Arrived:
    """A request: its first line, its headers in order, its body."""

    line: str
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def lower(self) -> dict[str, str]:
        """The headers by lower-case name."""
        return {name.lower(): value for name, value in self.headers}


async def deliver(job: Job, destination: Destination) -> Arrived:
    """Deliver `job` to a raw socket in place of the destination's host, and return what came out of it."""
    arrived: asyncio.Future[Arrived] = asyncio.get_running_loop().create_future()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("ascii").removesuffix("\r\n\r\n")
        line, *rest = head.split("\r\n")
        headers = [(name, value) for name, _, value in (each.partition(": ") for each in rest)]
        body = await reader.readexactly(int(dict(headers)["Content-Length"]))
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        writer.close()
        arrived.set_result(Arrived(line, headers, body))

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server, Sender() as sender:
        port = server.sockets[0].getsockname()[1]
        url = f"http://127.0.0.1:{port}{urlsplit(destination.url).path}"
        ended = await Deliverer(sender.send, random.Random(1)).deliver(job, replace(destination, url=url))
        assert ended.settlement.status == "done", ended
        return await arrived
