"""The replica's metrics for Prometheus, and for a collector by OTLP.

Imported only where somebody wants them: the SDK takes memory.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Meter, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricReader,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from prometheus_client import CollectorRegistry, generate_latest

from relay import __version__
from relay.telemetry.instruments import DISTRIBUTIONS, INSTRUMENTS, Distribution, Instrument, Sources
from relay.telemetry.protocol import understood
from relay.telemetry.tally import Buckets, Tally

# A collector that hangs may keep a stopping replica for so long.
_CLOSE_S = 2.0


class Metrics:
    """The metrics of one replica. `exporter` sends them every OTEL_METRIC_EXPORT_INTERVAL, on a thread of its own.

    Raises ConfigError for values of OTEL_* variables that are none.
    """

    def __init__(self, sources: Sources, exporter: MetricExporter | None, *, replica: str) -> None:
        self._registry = CollectorRegistry()
        self._one_at_a_time = threading.Lock()
        began_ns = time.time_ns()

        def distributions() -> list[Metric]:
            return [_metric(each, sources.tally, began_ns) for each in DISTRIBUTIONS]

        ours = {"service.name": "outbox-relay", "service.version": __version__, "service.instance.id": replica}
        with understood():
            readers: list[MetricReader] = [_Prometheus(distributions, self._registry)]
            if exporter is not None:
                readers.append(_Periodic(distributions, exporter))
            self._provider = MeterProvider(
                readers, Resource(ours).merge(OTELResourceDetector().detect()), shutdown_on_exit=False
            )
        # OTEL_SDK_DISABLED is heard where exporters are chosen; who asks for the page gets it.
        self._provider._disabled = False  # noqa: SLF001
        meter = self._provider.get_meter("relay", __version__)
        for each in INSTRUMENTS:
            _create(meter, each, sources)

    def text(self) -> bytes:
        """What Prometheus scrapes, in its text format 0.0.4. For any thread."""
        # Two at once would each find the families of both.
        with self._one_at_a_time:
            return generate_latest(self._registry)

    async def close(self) -> None:
        """Exports once more, for 2 s at most."""
        # A thread of ours: the event loop's own threads are waited for when it ends, however long they take.
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        await asyncio.to_thread(closing.join, _CLOSE_S)


def _create(meter: Meter, each: Instrument, sources: Sources) -> None:
    def observe(_options: CallbackOptions) -> Iterable[Observation]:
        return [
            Observation(value, dict(zip(each.labels, labels, strict=True))) for labels, value in each.values(sources)
        ]

    create = meter.create_observable_counter if each.kind == "counter" else meter.create_observable_gauge
    create(each.name, [observe], each.unit, each.meaning)


def _metric(each: Distribution, tally: Tally, began_ns: int) -> Metric:
    now_ns = time.time_ns()
    points = [
        _point(dict(zip(each.labels, labels, strict=True)), buckets, began_ns, now_ns)
        for labels, buckets in each.values(tally)
    ]
    return Metric(each.name, each.meaning, each.unit, Histogram(points, AggregationTemporality.CUMULATIVE))


def _point(labels: dict[str, str], buckets: Buckets, began_ns: int, now_ns: int) -> HistogramDataPoint:
    counts = list(buckets.counts)
    # Neither the least nor the largest is kept; the exporter leaves out what is None.
    unknown: Any = None
    return HistogramDataPoint(
        labels, began_ns, now_ns, sum(counts), buckets.sum, counts, buckets.bounds, min=unknown, max=unknown
    )


def _with(data: MetricsData, metrics: list[Metric]) -> MetricsData:
    """`data` of our one meter, and `metrics` beside what it has.

    The SDK's own histograms would take 6 µs for each value, twice a delivery.
    """
    [resource] = data.resource_metrics
    [scope] = resource.scope_metrics
    scope = replace(scope, metrics=[*scope.metrics, *metrics])
    return replace(data, resource_metrics=[replace(resource, scope_metrics=[scope])])


class _Prometheus(PrometheusMetricReader):
    def __init__(self, distributions: Callable[[], list[Metric]], registry: CollectorRegistry) -> None:
        super().__init__(disable_target_info=True, scope_info_enabled=False, registry=registry)
        self._distributions = distributions

    def _receive_metrics(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **options: object) -> None:
        super()._receive_metrics(_with(metrics_data, self._distributions()), timeout_millis, **options)


class _Periodic(PeriodicExportingMetricReader):
    def __init__(self, distributions: Callable[[], list[Metric]], exporter: MetricExporter) -> None:
        self._distributions = distributions
        super().__init__(exporter)

    def _receive_metrics(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **options: object) -> None:
        super()._receive_metrics(_with(metrics_data, self._distributions()), timeout_millis, **options)
