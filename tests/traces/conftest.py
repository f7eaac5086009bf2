"""Replicas that export to a collector, and a receiver they deliver to."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from relay.demo.nest import Nest
from tests.service.replica import Installation
from tests.traces.collector import Collector


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    """A collector that takes what it gets until told otherwise."""
    async with Collector() as collector:
        yield collector


@pytest.fixture
async def untraced(nest: Nest, tmp_path: Path, database: str) -> AsyncIterator[Installation]:
    """Processes whose environment says nothing of OpenTelemetry."""
    installation = Installation(nest, tmp_path, database)
    yield installation
    await installation.close()


@pytest.fixture
def traced(untraced: Installation, collector: Collector) -> Installation:
    """Processes that export to the collector, soon."""
    untraced.environment |= {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint,
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_BSP_SCHEDULE_DELAY": "50",
    }
    return untraced
