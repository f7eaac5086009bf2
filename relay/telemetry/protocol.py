"""Which of OpenTelemetry's OTLP exporters speaks a protocol."""

from importlib import import_module
from typing import Any

from relay.errors import ConfigError

_EXPORTERS = "opentelemetry.exporter.otlp.proto"


def exporters(protocol: str, name: str) -> tuple[Any, str]:
    """The module `name` for a value of OTEL_EXPORTER_OTLP_PROTOCOL, and the logger of what it exports with.

    Raises ConfigError where there is none.
    """
    match protocol:
        case "http/protobuf":
            module = import_module(f"{_EXPORTERS}.http.{name}")
            return module, module.__name__
        case "grpc":
            try:
                import_module(f"{_EXPORTERS}.grpc")  # what the extra brings
                base = import_module(f"{_EXPORTERS}.grpc.exporter")
                return import_module(f"{_EXPORTERS}.grpc.{name}"), base.__name__
            except ImportError as error:
                sentence = "OTEL_EXPORTER_OTLP_PROTOCOL=grpc needs its extra: pip install 'outbox-relay[grpc]'"
                raise ConfigError(f"{sentence} ({error})") from error
    raise ConfigError(f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}; the relay has http/protobuf and grpc")
