"""Which of OpenTelemetry's OTLP exporters speaks a protocol, and why it did not get through."""

import logging
from importlib import import_module
from typing import Any

from relay.errors import ConfigError
from relay.telemetry.log import without_credentials

_EXPORTERS = "opentelemetry.exporter.otlp.proto"


class Reason(logging.Filter):
    """Why an export failed: the first line that the exporter logs of it. What it logs is not written by itself."""

    def __init__(self, log: str) -> None:
        super().__init__()
        self._why = ""
        logging.getLogger(log).addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Keeps the first line: the first try says what is wrong, the last one only that it was the last."""
        self._why = self._why or record.getMessage()
        return False

    def take(self) -> str:
        """What was said since the last time, without credentials."""
        why, self._why = self._why, ""
        return without_credentials(why)


def exporters(protocol: str, name: str) -> tuple[Any, Reason]:
    """The module `name` for a value of OTEL_EXPORTER_OTLP_PROTOCOL, and why exports with it fail.

    Raises ConfigError where there is none.
    """
    match protocol:
        case "http/protobuf":
            module = import_module(f"{_EXPORTERS}.http.{name}")
            return module, Reason(module.__name__)
        case "grpc":
            try:
                import_module(f"{_EXPORTERS}.grpc")  # what the extra brings
                base = import_module(f"{_EXPORTERS}.grpc.exporter")
                return import_module(f"{_EXPORTERS}.grpc.{name}"), Reason(base.__name__)
            except ImportError as error:
                sentence = "OTEL_EXPORTER_OTLP_PROTOCOL=grpc needs its extra: pip install 'outbox-relay[grpc]'"
                raise ConfigError(f"{sentence} ({error})") from error
    raise ConfigError(f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}; the relay has http/protobuf and grpc")
