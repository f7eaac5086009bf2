"""The receiver of the failovers."""

from collections.abc import AsyncIterator

import pytest

from tests.receiver import Receiver


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """A receiver that accepts everything until told otherwise."""
    async with Receiver() as receiver:
        yield receiver
