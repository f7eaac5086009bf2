"""A collector that the standard variables name gets the same metrics, by OTLP over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from aiohttp import web as http
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from relay.telemetry.instruments import DISTRIBUTIONS, INSTRUMENTS
from tests.conftest import Connection
from tests.receiver import Receiver
from tests.service.replica import Installation

CANNOT_USE = "OpenTelemetry cannot use its OTEL_* variables:"


@dataclass
class Collector:
    """An HTTP server that keeps what the last export of a replica held; `status` is its answer."""

    status: int = 200
    port: int = 0
    exports: int = 0
    metrics: dict[str, Metric] = field(default_factory=dict)
    resource: dict[str, str] = field(default_factory=dict)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def take(self, request: http.Request) -> http.Response:
        """One export."""
        export = ExportMetricsServiceRequest.FromString(await request.read())
        for each in export.resource_metrics:
            self.resource = {pair.key: pair.value.string_value for pair in each.resource.attributes}
            self.metrics = {metric.name: metric for scope in each.scope_metrics for metric in scope.metrics}
        self.exports += 1
        async with self.changed:
            self.changed.notify_all()
        return http.Response(status=self.status)

    async def another(self) -> None:
        """Waits for the next export."""
        before = self.exports
        async with asyncio.timeout(30), self.changed:
            await self.changed.wait_for(lambda: self.exports > before)


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    """A collector that takes what it gets until told otherwise."""
    collector = Collector()
    application = http.Application(client_max_size=1 << 26)
    application.router.add_post("/v1/metrics", collector.take)
    runner = http.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await http.TCPSite(runner, "127.0.0.1", 0).start()
    collector.port = runner.addresses[0][1]
    yield collector
    await runner.cleanup()


@pytest.fixture
def exporting(installation: Installation, collector: Collector, receiver: Receiver) -> Installation:
    """Processes that export often, and answer no HTTP themselves."""
    installation.configure({"shop": {"url": receiver.url()}})
    installation.environment |= {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.port}",
        "OTEL_TRACES_EXPORTER": "none",
        "OTEL_METRIC_EXPORT_INTERVAL": "200",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
    }
    return installation


async def test_a_collector_gets_every_metric_with_its_unit_and_the_histograms_of_what_was_delivered(
    exporting: Installation, collector: Collector, connection: Connection
) -> None:
    await exporting.command("sync")
    await connection.execute("INSERT INTO outbox.job (topic, destination, payload) VALUES ('t', 'shop', '{}')")
    replica = await exporting.start()
    while (
        not (latency := collector.metrics.get("relay.delivery.latency")) or not latency.histogram.data_points[0].count
    ):
        await collector.another()
    [point] = latency.histogram.data_points
    assert [(pair.key, pair.value.string_value) for pair in point.attributes] == [("destination", "shop")]
    assert sum(point.bucket_counts) == point.count == 1
    assert not point.HasField("min")
    assert {name: metric.unit for name, metric in collector.metrics.items()} == {
        each.name: each.unit for each in (*INSTRUMENTS, *DISTRIBUTIONS)
    }
    assert collector.resource["service.name"] == "outbox-relay"
    assert collector.resource["service.instance.id"].startswith("one-")
    assert collector.resource["deployment.environment.name"] == "test"
    await replica.stop()


async def test_what_was_counted_last_is_exported_at_the_end(
    exporting: Installation, collector: Collector, receiver: Receiver, connection: Connection
) -> None:
    exporting.environment["OTEL_METRIC_EXPORT_INTERVAL"] = "3600000"
    replica = await exporting.start()
    await connection.execute("INSERT INTO outbox.job (topic, destination, payload) VALUES ('t', 'shop', '{}')")
    await receiver.wait_for(1)
    assert await replica.stop() == 0
    assert collector.exports == 1
    [point] = collector.metrics["relay.jobs.delivered"].sum.data_points
    assert point.as_double == 1 or point.as_int == 1


async def test_a_collector_that_refuses_is_said_once_and_so_is_its_return(
    exporting: Installation, collector: Collector
) -> None:
    collector.status = 400
    replica = await exporting.start()
    await replica.event("metrics_not_exported")
    await collector.another()
    collector.status = 200
    await replica.event("metrics_exported_again")
    assert len(replica.logged("metrics_not_exported")) == 1
    await replica.stop()


@pytest.mark.parametrize(
    "variables",
    [
        {"OTEL_METRICS_EXPORTER": "none"},
        {"OTEL_METRICS_EXPORTER": "prometheus"},
        {"OTEL_SDK_DISABLED": "true"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
    ],
)
async def test_nothing_is_exported_where_the_variables_do_not_ask_for_it(
    exporting: Installation, collector: Collector, variables: dict[str, str]
) -> None:
    exporting.environment |= variables
    replica = await exporting.start()
    assert await replica.stop() == 0
    assert collector.exports == 0


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        (
            {"OTEL_METRICS_EXPORTER": "statsd"},
            "OTEL_METRICS_EXPORTER is 'statsd'; the relay has otlp, prometheus and none",
        ),
        (
            {"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/json"},
            "OTEL_EXPORTER_OTLP_PROTOCOL is 'http/json'; the relay has http/protobuf and grpc",
        ),
        (
            {"OTEL_METRIC_EXPORT_INTERVAL": "0"},
            f"{CANNOT_USE} interval value 0.0 is invalid and needs to be larger than zero.",
        ),
        (
            {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "few"},
            f"{CANNOT_USE} OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT must be a non-negative integer but got few",
        ),
    ],
)  # fmt: skip
async def test_a_variable_that_asks_for_what_is_not_there_ends_the_start_with_a_sentence(
    exporting: Installation, variables: dict[str, str], sentence: str
) -> None:
    exporting.environment |= variables
    done = await exporting.command("run")
    assert (done.code, done.error) == (2, f"relay: {sentence}\n")
