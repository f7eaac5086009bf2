"""The one thing that every peer's handler does: post a payload with its key, with one aiohttp session."""

import asyncio
import signal

import aiohttp


def session() -> aiohttp.ClientSession:
    """A session without a limit of its own."""
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))


async def post(session: aiohttp.ClientSession, url: str, key: str, body: bytes) -> None:
    """One delivery; anything but 2xx raises."""
    headers = {"Content-Type": "application/json", "Idempotency-Key": key}
    async with asyncio.timeout(15), session.post(url, data=body, headers=headers) as answer:
        await answer.read()
        answer.raise_for_status()


async def told_to_stop() -> None:
    """Returns at SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
