"""Bare loops that only post, without a database: the yardstick (aiohttp alone) and the relay's own client.

    python -m tests.bench.bare CLIENT URL JOBS SLOTS BYTES

posts a few, says `ready`, posts JOBS when a line comes in, says `done`, and ends with its input.
"""

import asyncio
import itertools
import sys
import uuid

import aiohttp

from relay.model import Answer, Destination
from relay.sender import Sender


def _headers(key: str) -> list[tuple[str, str]]:
    return [
        ("Content-Type", "application/json"),
        ("User-Agent", "bench"),
        ("Idempotency-Key", key),
        ("webhook-id", key),
        ("webhook-timestamp", "1700000000"),
        ("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
        ("Relay-Topic", "order.paid"),
        ("Relay-Sequence", "123456"),
        ("Relay-Attempt", "1"),
    ]


async def with_aiohttp(url: str, jobs: int, in_flight: int, body: bytes) -> None:
    """Posts with one ClientSession and `in_flight` workers."""
    keys = itertools.islice(iter(lambda: str(uuid.uuid4()), None), jobs)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def work() -> None:
            for key in keys:
                async with asyncio.timeout(15), session.post(url, data=body, headers=_headers(key)) as answer:
                    await answer.read()
                    assert answer.status == 204

        await asyncio.gather(*(work() for _ in range(in_flight)))


async def with_sender(url: str, jobs: int, in_flight: int, body: bytes) -> None:
    """Posts with the relay's own client."""
    keys = itertools.islice(iter(lambda: str(uuid.uuid4()), None), jobs)
    destination = Destination(name="bench", url=url)
    async with Sender() as sender:

        async def work() -> None:
            for key in keys:
                answer = await sender.send(destination, _headers(key), body)
                assert isinstance(answer, Answer)

        await asyncio.gather(*(work() for _ in range(in_flight)))


CLIENTS = {"aiohttp": with_aiohttp, "sender": with_sender}


def main(client: str, url: str, jobs: int, slots: int, payload_bytes: int) -> None:
    """Speaks with who measures it."""
    body = b"x" * payload_bytes
    asyncio.run(CLIENTS[client](url, 4 * slots, slots, body))
    print("ready", flush=True)
    sys.stdin.readline()
    asyncio.run(CLIENTS[client](url, jobs, slots, body))
    print("done", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
