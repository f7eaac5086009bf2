"""Replicas as processes that answer over HTTP."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from relay.demo.nest import Nest
from tests.metrics.scrape import Web, free_port
from tests.service.replica import Installation


@pytest.fixture
async def installation(nest: Nest, tmp_path: Path, database: str) -> AsyncIterator[Installation]:
    """Processes on the shared, emptied database, whose environment says nothing of OpenTelemetry."""
    installation = Installation(nest, tmp_path, database)
    yield installation
    await installation.close()


@pytest.fixture
def web(installation: Installation) -> Web:
    """Where the next replica answers."""
    web = Web(free_port())
    installation.environment["RELAY_WEB_PORT"] = str(web.port)
    return web
