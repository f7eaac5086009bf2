"""The way of spans to a collector, in words that an operator can use when it is blocked."""

import logging
from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from relay.telemetry.log import event, without_credentials
from relay.telemetry.protocol import exporters


def exporter_of(protocol: str) -> SpanExporter:
    """The exporter for a value of OTEL_EXPORTER_OTLP_PROTOCOL; raises ConfigError where there is none."""
    module, log = exporters(protocol, "trace_exporter")
    return _Exporter(module.OTLPSpanExporter(), log)


class _Exporter(SpanExporter):
    """Says once that the collector takes no spans, and once that it does again, instead of at every try.

    `log` is the logger of the exporter inside. What it says is the reason, and is not written by itself.
    """

    def __init__(self, exporter: SpanExporter, log: str) -> None:
        self._exporter = exporter
        self._failing = False
        self._why = ""
        logging.getLogger(log).addFilter(self._keep)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Sends a batch, on the exporter's own thread."""
        self._why = ""
        result = self._exporter.export(spans)
        failing = result is not SpanExportResult.SUCCESS
        if failing and not self._failing:
            event(logging.WARNING, "traces_not_exported", why=without_credentials(self._why))
        elif self._failing and not failing:
            event(logging.INFO, "traces_exported_again")
        self._failing = failing
        return result

    def shutdown(self) -> None:
        """Ends the retries under way."""
        self._exporter.shutdown()

    def _keep(self, record: logging.LogRecord) -> bool:
        # The first try says what is wrong, the last one only that it was the last.
        self._why = self._why or record.getMessage()
        return False
