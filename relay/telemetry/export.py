"""The way of spans to a collector, in words that an operator can use when it is blocked."""

import logging
from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from relay.telemetry.log import event
from relay.telemetry.protocol import Reason, exporters


def exporter_of(protocol: str) -> SpanExporter:
    """The exporter for a value of OTEL_EXPORTER_OTLP_PROTOCOL; raises ConfigError where there is none."""
    module, reason = exporters(protocol, "trace_exporter")
    return _Exporter(module.OTLPSpanExporter(), reason)


class _Exporter(SpanExporter):
    """Says once that the collector takes no spans, and once that it does again, instead of at every try."""

    def __init__(self, exporter: SpanExporter, reason: Reason) -> None:
        self._exporter = exporter
        self._reason = reason
        self._failing = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Sends a batch, on the exporter's own thread."""
        result = self._exporter.export(spans)
        failing, why = result is not SpanExportResult.SUCCESS, self._reason.take()
        if failing and not self._failing:
            event(logging.WARNING, "traces_not_exported", why=why)
        elif self._failing and not failing:
            event(logging.INFO, "traces_exported_again")
        self._failing = failing
        return result

    def shutdown(self) -> None:
        """Ends the retries under way."""
        self._exporter.shutdown()
