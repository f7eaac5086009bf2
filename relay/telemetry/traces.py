"""Spans of a replica: one for each attempt, claim and settle.

Imported only where they are exported (`relay.telemetry.otlp`). Sampler, limits and batches are what the SDK reads
from the standard OTEL_* variables. docs/tracing.md has the table of spans; names are those of the semantic
conventions for messaging and HTTP, and `outbox.*` where those have none.
"""

import asyncio
import functools
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from opentelemetry.context import Context
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import Sampler, SamplingResult
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    TraceState,
    set_span_in_context,
)
from opentelemetry.util.types import Attributes

from relay import __version__
from relay.model import Answer, Destination, Job, Result, Settlement
from relay.rules.request import valid_traceparent, valid_tracestate

# A collector that hangs may keep a stopping replica for so long; what it has not taken by then is lost.
_CLOSE_S = 2.0
# Every span begins a trace: the producer's ended with its transaction, perhaps days ago.
_ROOT = Context()


class Traces:
    """Makes the spans of one replica; nothing here waits for a collector but `close`."""

    def __init__(self, exporter: SpanExporter, *, replica: str) -> None:
        ours = {"service.name": "outbox-relay", "service.version": __version__, "service.instance.id": replica}
        resource = Resource(ours).merge(OTELResourceDetector().detect())
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.sampler = _ProducersSampler(self._provider.sampler)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("relay", __version__)

    def attempt(self, job: Job, destination: Destination) -> "Attempt":
        """Begins the span of one attempt, linked to the producer's where `job` has a well-formed context."""
        producer = _producer(job)
        links = [Link(producer)] if producer is not None else None
        name, attributes = f"deliver {destination.name}", _about(job, destination)
        return Attempt(self._tracer.start_span(name, _ROOT, SpanKind.CLIENT, attributes, links))

    def claimed(self, jobs: int, since_s: float) -> None:
        """The span of a claim that was sent at `since_s` (monotonic) and has brought so many jobs, now."""
        if jobs:
            self._batch(_operation("receive", "claim"), jobs, since_s)

    def settled(self, jobs: int, since_s: float) -> None:
        """The span of a settle that was sent at `since_s` (monotonic) and has written so many outcomes, now."""
        self._batch(_operation("settle", "settle"), jobs, since_s)

    async def close(self) -> None:
        """Exports what is left, for 2 s at most."""
        # A thread of ours: the event loop's own threads are waited for when it ends, however long they take.
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        await asyncio.to_thread(closing.join, _CLOSE_S)

    def _batch(self, operation: dict[str, str], jobs: int, since_s: float) -> None:
        ended_ns = time.time_ns()
        began_ns = ended_ns - int((time.monotonic() - since_s) * 1e9)
        attributes: Attributes = {**operation, "messaging.batch.message_count": jobs}
        name = operation["messaging.operation.name"]
        self._tracer.start_span(name, _ROOT, SpanKind.CLIENT, attributes, start_time=began_ns).end(ended_ns)


class Attempt:
    """The span of one attempt, as a context manager that ends it; one that is cut off ends as released."""

    def __init__(self, span: Span) -> None:
        self._span = span
        context = span.get_span_context()
        #: What the receiver gets: the span's own context, whether it is sampled or not.
        self.traceparent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
        #: 32 hex digits where the span is sampled, so that who looks it up finds it.
        self.trace_id = f"{context.trace_id:032x}" if context.trace_flags.sampled else None

    def tell(self, result: Result, settlement: Settlement) -> None:
        """Notes how the attempt ended."""
        if not self._span.is_recording():
            return
        if isinstance(result, Answer):
            self._span.set_attribute("http.response.status_code", result.status)
        self._span.set_attribute("outbox.outcome", settlement.status)
        if settlement.failure is not None:
            self._span.set_attribute("error.type", settlement.failure.error_class.value)
            self._span.set_status(StatusCode.ERROR, settlement.failure.detail)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is asyncio.CancelledError:
            self._span.set_attribute("outbox.outcome", "released")
        self._span.end()


class _ProducersSampler(Sampler):
    """Lets the producer, whom an attempt is linked to, decide as a parent would; else what OTEL_TRACES_SAMPLER says."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        """As the sampler inside says. The tracestate is left out: it belongs to the producer's trace."""
        if links:
            parent_context = set_span_in_context(NonRecordingSpan(links[0].context), parent_context)
        result = self._sampler.should_sample(parent_context, trace_id, name, kind, attributes, links, trace_state)
        return SamplingResult(result.decision, result.attributes)

    def get_description(self) -> str:
        """The sampler's name."""
        return f"Producers({self._sampler.get_description()})"


def _producer(job: Job) -> SpanContext | None:
    """The context that the producer wrote (W3C Trace Context, section 3.2), where it is well-formed."""
    if job.traceparent is None or not valid_traceparent(job.traceparent):
        return None
    _, trace_id, span_id, flags = job.traceparent.split("-")[:4]
    state = job.tracestate is not None and valid_tracestate(job.tracestate)
    return SpanContext(
        int(trace_id, 16),
        int(span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(int(flags, 16)),
        trace_state=TraceState.from_header([job.tracestate]) if state and job.tracestate else None,
    )


def _about(job: Job, destination: Destination) -> Attributes:
    address, port, scheme = _server(destination.url)
    return {
        **_operation("send", "deliver"),
        "messaging.destination.name": destination.name,
        "messaging.message.id": str(job.id),
        "messaging.message.body.size": len(job.body),
        "http.request.method": "POST",
        "server.address": address,
        "server.port": port,
        "url.scheme": scheme,
        "outbox.topic": job.topic,
        "outbox.attempt": job.attempts,
    }


@functools.lru_cache(1024)
def _server(url: str) -> tuple[str, int, str]:
    """Host, port and scheme: a path may be a secret as well as a query or userinfo."""
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80), parts.scheme


def _operation(kind: str, name: str) -> dict[str, str]:
    return {"messaging.system": "outbox", "messaging.operation.type": kind, "messaging.operation.name": name}
