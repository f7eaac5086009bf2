"""Which of OpenTelemetry's OTLP exporters speaks a protocol, and why it did not get through."""

import contextlib
import functools
import logging
import threading
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from relay.errors import ConfigError
from relay.telemetry.log import without_credentials

_EXPORTERS = "opentelemetry.exporter.otlp.proto"


class Reason(logging.Filter):
    """Why an export failed: the first line that the exporter logs of it. What it logs is not written by itself."""

    def __init__(self) -> None:
        super().__init__()
        # Over gRPC spans and metrics share a logger, and each is exported by a thread of its own.
        self._said = threading.local()

    def filter(self, record: logging.LogRecord) -> bool:
        """Keeps the first line: the first try says what is wrong, the last one only that it was the last."""
        self._said.why = getattr(self._said, "why", "") or record.getMessage()
        return False

    def take(self) -> str:
        """What was said by this thread since the last time, without credentials."""
        why, self._said.why = getattr(self._said, "why", ""), ""
        return without_credentials(why)


@functools.cache
def _reason(log: str) -> Reason:
    """The one of this logger: a second filter would hear nothing."""
    reason = Reason()
    logging.getLogger(log).addFilter(reason)
    return reason


def _without_value(record: logging.LogRecord) -> bool:
    record.args = ("…",)
    return True


# What the SDK says of a header that it cannot read has the header in it, and with it a token.
logging.getLogger("opentelemetry.util.re").addFilter(_without_value)


@contextlib.contextmanager
def understood() -> Iterator[None]:
    """Raises a ConfigError in the place of what OpenTelemetry raises of a variable that it cannot use."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:  # its packages agree on no class
        why = without_credentials(" ".join(str(error).split()))
        raise ConfigError(f"OpenTelemetry cannot use its OTEL_* variables: {why}") from error


def exporters(protocol: str, name: str) -> tuple[Any, Reason]:
    """The module `name` for a value of OTEL_EXPORTER_OTLP_PROTOCOL, and why exports with it fail.

    Raises ConfigError where there is none.
    """
    match protocol:
        case "http/protobuf":
            module = import_module(f"{_EXPORTERS}.http.{name}")
            return module, _reason(module.__name__)
        case "grpc":
            try:
                import_module(f"{_EXPORTERS}.grpc")  # what the extra brings
                base = import_module(f"{_EXPORTERS}.grpc.exporter")
                return import_module(f"{_EXPORTERS}.grpc.{name}"), _reason(base.__name__)
            except ImportError as error:
                sentence = "OTEL_EXPORTER_OTLP_PROTOCOL=grpc needs its extra: pip install 'outbox-relay[grpc]'"
                raise ConfigError(f"{sentence} ({error})") from error
    raise ConfigError(f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}; the relay has http/protobuf and grpc")
