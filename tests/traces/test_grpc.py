"""What the extra `grpc` brings: spans and metrics reach a collector over gRPC."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import grpc  # type: ignore[import-untyped]
import pytest
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics_pb
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import (
    MetricsServiceServicer,
    add_MetricsServiceServicer_to_server,
)
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace_pb
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)

from tests.conftest import Connection
from tests.receiver import Receiver
from tests.service.replica import Installation


@dataclass
class Collector(TraceServiceServicer, MetricsServiceServicer):
    """Keeps the names of what arrives, of spans and metrics; both services have one method, and the request tells."""

    port: int = 0
    names: set[str] = field(default_factory=set)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def Export(  # noqa: N802 - so the protocol calls it
        self,
        request: trace_pb.ExportTraceServiceRequest | metrics_pb.ExportMetricsServiceRequest,
        _context: object,
    ) -> trace_pb.ExportTraceServiceResponse | metrics_pb.ExportMetricsServiceResponse:
        """One export."""
        answer: trace_pb.ExportTraceServiceResponse | metrics_pb.ExportMetricsServiceResponse
        if isinstance(request, trace_pb.ExportTraceServiceRequest):
            self.names |= {n.name for each in request.resource_spans for s in each.scope_spans for n in s.spans}
            answer = trace_pb.ExportTraceServiceResponse()
        else:
            self.names |= {n.name for each in request.resource_metrics for s in each.scope_metrics for n in s.metrics}
            answer = metrics_pb.ExportMetricsServiceResponse()
        async with self.changed:
            self.changed.notify_all()
        return answer


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    """A collector that speaks gRPC only."""
    collector, server = Collector(), grpc.aio.server()
    add_TraceServiceServicer_to_server(collector, server)  # type: ignore[no-untyped-call]
    add_MetricsServiceServicer_to_server(collector, server)  # type: ignore[no-untyped-call]
    collector.port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield collector
    await server.stop(None)


@pytest.fixture
def exporting(untraced: Installation, receiver: Receiver) -> Installation:
    """Processes that export often over gRPC, to port 1 until told otherwise."""
    untraced.configure({"shop": {"url": receiver.url()}})
    untraced.environment |= {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "2",
        "OTEL_BSP_SCHEDULE_DELAY": "50",
        "OTEL_METRIC_EXPORT_INTERVAL": "200",
    }
    return untraced


async def test_spans_and_metrics_arrive_over_grpc(
    exporting: Installation, collector: Collector, connection: Connection
) -> None:
    exporting.environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{collector.port}"
    await connection.execute("INSERT INTO outbox.job (destination, topic, payload) VALUES ('shop', 't', '{}')")
    replica = await exporting.start()
    async with asyncio.timeout(30), collector.changed:
        await collector.changed.wait_for(
            lambda: {"deliver shop", "claim", "settle", "relay.jobs.delivered"} <= collector.names
        )
    assert await replica.stop() == 0
    assert not replica.logged("traces_not_exported")
    assert not replica.logged("metrics_not_exported")


async def test_of_a_collector_that_is_gone_both_signals_say_why(
    exporting: Installation, connection: Connection
) -> None:
    await connection.execute("INSERT INTO outbox.job (destination, topic, payload) VALUES ('shop', 't', '{}')")
    replica = await exporting.start()
    for signal in ("traces", "metrics"):
        gone = await replica.event(f"{signal}_not_exported")
        assert signal in gone["why"], gone
    assert await replica.stop() == 0
