"""Without an exporter there are no spans, nor anything that makes them."""

import random
import subprocess
import sys
from collections.abc import Iterator
from unittest.mock import patch

import pytest
from opentelemetry.sdk.trace import Span as SdkSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NonRecordingSpan, SpanContext

from relay.deliver import Deliverer
from relay.errors import ConfigError
from relay.model import Answer, Destination, Job
from relay.telemetry import otlp
from relay.telemetry.traces import Traces

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
SHOP = Destination("shop", "https://shop.example/")
ATTEMPTS = 100


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of OpenTelemetry in the environment but what a test sets."""
    for name in ("ENDPOINT", "TRACES_ENDPOINT", "PROTOCOL", "TRACES_PROTOCOL"):
        monkeypatch.delenv(f"OTEL_EXPORTER_OTLP_{name}", raising=False)
    for name in ("OTEL_TRACES_EXPORTER", "OTEL_SDK_DISABLED", "OTEL_TRACES_SAMPLER"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def made() -> Iterator[list[str]]:
    """The name of the class of every object of tracing that is made, in the order they are."""
    names: list[str] = []

    def counting(cls: type, name: str) -> object:
        original = getattr(cls, name)

        def count(self: object, *args: object, **kwargs: object) -> object:
            names.append(cls.__name__)
            return original(self, *args, **kwargs)

        return patch.object(cls, name, count)

    patches = [counting(SdkSpan, "__init__"), counting(NonRecordingSpan, "__init__"), counting(SpanContext, "__new__")]
    for each in patches:
        each.start()  # type: ignore[attr-defined]
    yield names
    for each in patches:
        each.stop()  # type: ignore[attr-defined]


async def accept(_destination: Destination, _headers: list[tuple[str, str]], _body: bytes) -> Answer:
    """What a receiver answers."""
    return Answer(204, {}, b"")


async def deliver(traces: Traces | None) -> None:
    """Many attempts of jobs that a sampled producer wrote."""
    deliverer = Deliverer(accept, random.Random(1), traces)
    for number in range(ATTEMPTS):
        job = Job(number, "shop", "t", None, "key", "application/json", b"{}", {}, 1, 1, traceparent=TRACEPARENT)
        await deliverer.deliver(job, SHOP)


async def test_with_tracing_off_no_span_objects_are_made(made: list[str]) -> None:
    traces = otlp.traces("one")
    await deliver(traces)
    assert made == []
    # The same count sees one span an attempt where it is on.
    traces = Traces(InMemorySpanExporter(), replica="one")
    await deliver(traces)
    assert made.count("_Span") + made.count("Span") == ATTEMPTS
    await traces.close()


async def test_with_tracing_off_the_producers_own_context_is_passed_on() -> None:
    sent: dict[str, str] = {}

    async def keep(_destination: Destination, headers: list[tuple[str, str]], _body: bytes) -> Answer:
        sent.update(headers)
        return Answer(204, {}, b"")

    job = Job(7, "shop", "t", None, "key", "application/json", b"{}", {}, 1, 1, None, TRACEPARENT, "congo=t61rcWkgMzE")
    await Deliverer(keep, random.Random(1), otlp.traces("one")).deliver(job, SHOP)
    assert (sent["traceparent"], sent["tracestate"]) == (TRACEPARENT, "congo=t61rcWkgMzE")


def test_with_tracing_off_a_replica_does_not_even_import_the_sdk() -> None:
    code = "import sys, relay.service; assert 'opentelemetry.sdk.trace' not in sys.modules, sorted(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("variables", "on"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:9/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_SDK_DISABLED": "true"}, False),
    ],
)
async def test_the_standard_variables_switch_traces_on_and_off(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], *, on: bool
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    traces = otlp.traces("one")
    assert (traces is not None) is on
    if traces is not None:
        await traces.close()


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER is 'zipkin'; the relay has otlp and none"),
        (
            {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
            "OTEL_EXPORTER_OTLP_PROTOCOL is 'http/json'; the relay has http/protobuf and grpc",
        ),
    ],
)
def test_an_exporter_that_the_relay_does_not_have_is_refused(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], sentence: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError) as refused:
        otlp.traces("one")
    assert str(refused.value) == sentence


@pytest.mark.parametrize(
    ("variables", "what"),
    [
        ({"OTEL_BSP_MAX_QUEUE_SIZE": "10"}, "max_export_batch_size must be less than or equal to max_queue_size"),
        (
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_COMPRESSION": "zip"},
            'Invalid value "zip" for compression',
        ),
    ],
)
def test_a_value_that_opentelemetry_cannot_use_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], what: str
) -> None:
    for name, value in {"OTEL_TRACES_EXPORTER": "otlp", **variables}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=rf"^OpenTelemetry cannot use its OTEL_\* variables: {what}"):
        otlp.traces("one")


def test_grpc_without_its_extra_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.grpc", None)
    with pytest.raises(ConfigError, match=r"pip install 'outbox-relay\[grpc\]'"):
        otlp.traces("one")
