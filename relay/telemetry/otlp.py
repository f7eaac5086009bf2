"""Whether spans and metrics are exported, and how: what the standard OTEL_* variables say.

They are OpenTelemetry's and not the relay's, so they are read here and by the SDK, not by `relay.config`.
"""

import os
from typing import TYPE_CHECKING

from relay.errors import ConfigError

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricExporter

    from relay.telemetry.traces import Traces


def traces(replica: str) -> "Traces | None":
    """The traces of this replica, or None where they are off: no endpoint, exporter `none`, or the SDK disabled.

    Raises ConfigError for an exporter or a protocol that the relay does not have, and for values that are none.
    """
    protocol = _protocol("TRACES", ("otlp", "none"))
    if protocol is None:
        return None
    # A replica without traces needs neither the SDK nor its exporters in memory.
    from relay.telemetry.protocol import understood  # noqa: PLC0415

    with understood():
        # Some variables are read when the SDK is imported.
        from relay.telemetry.export import exporter_of  # noqa: PLC0415
        from relay.telemetry.traces import Traces  # noqa: PLC0415

        return Traces(exporter_of(protocol), replica=replica)


def metrics() -> "MetricExporter | None":
    """Sends metrics to a collector; None where no variable asks for it. Prometheus scrapes them in any case.

    Raises ConfigError for an exporter or a protocol that the relay does not have, and for values that are none.
    """
    protocol = _protocol("METRICS", ("otlp", "prometheus", "none"))
    if protocol is None:
        return None
    from relay.telemetry.protocol import understood  # noqa: PLC0415

    with understood():
        from relay.telemetry.push import metric_exporter_of  # noqa: PLC0415

        return metric_exporter_of(protocol)


def _protocol(signal: str, known: tuple[str, ...]) -> str | None:
    """The OTLP protocol for a signal; None where it is off: no endpoint, another exporter, or the SDK disabled."""
    if _variable("OTEL_SDK_DISABLED").lower() == "true":
        return None
    endpoint = _variable(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT") or _variable("OTEL_EXPORTER_OTLP_ENDPOINT")
    name = f"OTEL_{signal}_EXPORTER"
    # The specification allows a list.
    exporters = {each.strip() for each in (_variable(name) or ("otlp" if endpoint else "none")).split(",")}
    if unknown := sorted(exporters - set(known)):
        raise ConfigError(f"{name} is {unknown[0]!r}; the relay has {', '.join(known[:-1])} and {known[-1]}")
    if "otlp" not in exporters:
        return None
    protocol = _variable(f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL") or _variable("OTEL_EXPORTER_OTLP_PROTOCOL")
    return protocol or "http/protobuf"


def _variable(name: str) -> str:
    """A variable of the OpenTelemetry specification: an empty one is not set."""
    return os.environ.get(name, "").strip()
