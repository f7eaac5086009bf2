"""The receiver of the rollouts."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from tests.receiver import Arrival, Receiver, accept


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """A receiver that takes a moment, so that a signal finds requests in flight."""

    async def work(arrival: Arrival) -> web.StreamResponse:
        await asyncio.sleep(0.05)
        return await accept(arrival)

    async with Receiver(work) as receiver:
        yield receiver
