"""Replicas as processes, against the tests' PostgreSQL and a receiver on a real socket."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from relay.demo.nest import Nest
from tests.conftest import POOLER
from tests.service.replica import Installation


@pytest.fixture
async def installation(nest: Nest, tmp_path: Path, database: str, pooled: str) -> AsyncIterator[Installation]:
    """Processes on the shared, emptied database; whatever a test does, none of them may have logged a bug."""
    installation = Installation(nest, tmp_path, pooled)
    if POOLER:
        installation.environment["RELAY_DATABASE_PREPARED_STATEMENTS"] = "false"
    if POOLER == "listen":
        installation.environment["RELAY_DATABASE_LISTEN_DSN"] = database
    yield installation
    await installation.close()
