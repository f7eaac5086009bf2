from collections.abc import AsyncIterator

import pytest

from relay.sender import Sender


@pytest.fixture
async def sender() -> AsyncIterator[Sender]:
    async with Sender() as sender:
        yield sender
