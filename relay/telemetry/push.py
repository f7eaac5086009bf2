"""The way of metrics to a collector, in words that an operator can use when it is blocked."""

import logging
from typing import Any

from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData

from relay.telemetry.log import event
from relay.telemetry.protocol import Reason, exporters


def metric_exporter_of(protocol: str) -> MetricExporter:
    """The exporter for a value of OTEL_EXPORTER_OTLP_PROTOCOL; raises ConfigError where there is none."""
    module, reason = exporters(protocol, "metric_exporter")
    return _Exporter(module.OTLPMetricExporter(), reason)


class _Exporter(MetricExporter):
    """Says once that the collector takes no metrics, and once that it does again, as that of the spans does."""

    def __init__(self, exporter: MetricExporter, reason: Reason) -> None:
        # The reader asks here what the exporter inside was told by OTEL_EXPORTER_OTLP_METRICS_*.
        super().__init__(exporter._preferred_temporality, exporter._preferred_aggregation)  # noqa: SLF001
        self._exporter = exporter
        self._reason = reason
        self._failing = False

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **options: Any) -> MetricExportResult:
        """Sends one collection, on the reader's own thread."""
        result = self._exporter.export(metrics_data, timeout_millis, **options)
        failing, why = result is not MetricExportResult.SUCCESS, self._reason.take()
        if failing and not self._failing:
            event(logging.WARNING, "metrics_not_exported", why=why)
        elif self._failing and not failing:
            event(logging.INFO, "metrics_exported_again")
        self._failing = failing
        return result

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """Waits for the export under way."""
        return self._exporter.force_flush(timeout_millis)

    def shutdown(self, timeout_millis: float = 30_000, **options: Any) -> None:
        """Ends the retries under way."""
        self._exporter.shutdown(timeout_millis, **options)
