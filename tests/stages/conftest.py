"""Stages on a real store: two of them, as two replicas would have."""

from collections.abc import AsyncIterator

import pytest

from relay.database import Database
from relay.store import Store
from tests.stages.stage import LEASE_S


@pytest.fixture
async def connections(database: str) -> AsyncIterator[Database]:
    """Connections to the emptied database, as a replica has them."""
    async with Database(database, name="relay stages") as connections:
        await connections.wait(30)
        yield connections


@pytest.fixture
def store(connections: Database) -> Store:
    """The statements of one replica."""
    return Store(connections, locked_by="one", lease_s=LEASE_S)


@pytest.fixture
def other_store(connections: Database) -> Store:
    """The statements of another replica."""
    return Store(connections, locked_by="two", lease_s=LEASE_S)
