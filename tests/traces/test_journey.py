"""One job, from the INSERT of an instrumented client through two failed attempts to a receiver that goes on."""

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
from aiohttp import web
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.psycopg import PsycopgInstrumentor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from relay import __version__
from tests.conftest import Connection
from tests.docs.pages import snippet
from tests.receiver import Arrival, Receiver
from tests.service.replica import Installation
from tests.traces.collector import Collector, Link, Span


def provider(collector: Collector, service: str) -> TracerProvider:
    """The SDK of another service, exporting to the same collector."""
    made = TracerProvider(resource=Resource({"service.name": service}), shutdown_on_exit=False)
    made.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{collector.endpoint}/v1/traces")))
    return made


def produce(dsn: str, shop: TracerProvider) -> None:
    """The example of docs/tracing.md on an instrumented connection."""
    example: dict[str, Callable[..., None]] = {}
    exec(snippet("docs/tracing.md", "psycopg"), example)  # noqa: S102 - our own page
    with psycopg.connect(dsn, autocommit=True) as connection:
        PsycopgInstrumentor().instrument_connection(connection, tracer_provider=shop)
        example["pay"](connection, shop.get_tracer("shop"), 42)


def failing_twice(billing: TracerProvider) -> Callable[[Arrival], Any]:
    """A receiver with a span of its own in the trace that comes with each request; it accepts the third."""
    answers = [503, 500, 204]

    async def answer(arrival: Arrival) -> web.StreamResponse:
        sent = {name.lower(): value for name, value in arrival.headers.items()}
        came_with = TraceContextTextMapPropagator().extract(sent)
        with billing.get_tracer("billing").start_as_current_span("POST /hook", came_with, SpanKind.SERVER):
            return web.Response(status=answers.pop(0))

    return answer


async def journey(collector: Collector, installation: Installation, receiver: Receiver) -> None:
    """Everything up to the moment when all spans have arrived."""
    shop, billing = provider(collector, "shop"), provider(collector, "billing")
    receiver.answer = failing_twice(billing)
    retry = {"base_s": 0.05, "factor": 1, "cap_s": 1}
    url = receiver.url("/hook/token-in-the-path?token=in-the-query")
    installation.configure({"billing": {"url": url, "topics": ["order.*"], "retry": retry}})
    assert (await installation.command("sync")).code == 0
    await installation.start("one")
    await asyncio.to_thread(produce, installation.dsn, shop)
    await receiver.wait_for(3)
    for made in (shop, billing):
        await asyncio.to_thread(made.shutdown)
    await collector.wait_until(lambda: len(collector.named("deliver billing")) == 3 and len(claims(collector)) == 3)
    await collector.wait_until(lambda: len(collector.named("settle")) == 3)


def claims(collector: Collector) -> list[Span]:
    """The claims that took a job."""
    return collector.named("claim")


async def test_a_trace_leads_from_the_insert_through_two_failed_attempts_to_the_receiver(
    collector: Collector, traced: Installation, receiver: Receiver, connection: Connection
) -> None:
    await journey(collector, traced, receiver)

    [pay] = collector.named("pay")
    [insert] = [span for span in collector.named("INSERT") if span.resource["service.name"] == "shop"]
    assert (insert.trace_id, insert.parent) == (pay.trace_id, pay.span_id)

    attempts = collector.named("deliver billing")
    assert [span.attempt for span in attempts] == [1, 2, 3]
    # Linked to what wrote the job, and no child of it: each a trace of its own.
    assert [span.links for span in attempts] == [[Link(pay.trace_id, pay.span_id, "")]] * 3
    assert [span.parent for span in attempts] == ["", "", ""]
    assert len({pay.trace_id, *(span.trace_id for span in attempts)}) == 4

    # The receiver's spans are children of the attempts, in their traces.
    received = collector.named("POST /hook")
    assert [(span.trace_id, span.parent) for span in received] == [(span.trace_id, span.span_id) for span in attempts]
    contexts = [arrival.headers["traceparent"].rsplit("-", 1) for arrival in receiver.arrivals]
    assert [context for context, _ in contexts] == [f"00-{span.trace_id}-{span.span_id}" for span in attempts]
    assert all(int(flags, 16) & 1 for _, flags in contexts)

    always = {
        "messaging.system": "outbox",
        "messaging.operation.type": "send",
        "messaging.operation.name": "deliver",
        "messaging.destination.name": "billing",
        "messaging.message.id": str(receiver.arrivals[0].sequence),
        "messaging.message.body.size": len('{"paid": true}'),
        "http.request.method": "POST",
        "server.address": "127.0.0.1",
        "server.port": receiver.port,
        "url.scheme": "http",
        "outbox.topic": "order.paid",
    }
    assert [span.attributes for span in attempts] == [
        {**always, "outbox.attempt": 1, "http.response.status_code": 503, "outbox.outcome": "pending",
         "error.type": "status"},
        {**always, "outbox.attempt": 2, "http.response.status_code": 500, "outbox.outcome": "pending",
         "error.type": "status"},
        {**always, "outbox.attempt": 3, "http.response.status_code": 204, "outbox.outcome": "done"},
    ]  # fmt: skip
    assert [(span.failed, span.why) for span in attempts] == [
        (True, "503 Service Unavailable"), (True, "500 Internal Server Error"), (False, ""),
    ]  # fmt: skip
    assert {span.kind for span in attempts} == {"CLIENT"}
    resource = attempts[0].resource
    assert (resource["service.name"], resource["service.version"]) == ("outbox-relay", __version__)
    assert resource["service.instance.id"].startswith("one-")

    for name, operation in (("claim", "receive"), ("settle", "settle")):
        for span in collector.named(name):
            assert span.attributes == {
                "messaging.system": "outbox",
                "messaging.operation.type": operation,
                "messaging.operation.name": name,
                "messaging.batch.message_count": 1,
            }
            assert (span.parent, span.kind, span.links) == ("", "CLIENT", [])
            assert span.began_ns <= span.ended_ns
    # Where the time went: each claim ends before its attempt begins, and each settle begins after it.
    for claim, attempt, settle in zip(claims(collector), attempts, collector.named("settle"), strict=True):
        assert claim.ended_ns <= attempt.began_ns
        assert attempt.ended_ns <= settle.began_ns

    kept = await connection.execute("SELECT trace_id FROM outbox.attempt ORDER BY attempt")
    assert [row[0] for row in await kept.fetchall()] == [span.trace_id for span in attempts[:2]]
    shown = await traced.command("job", "show", str(receiver.arrivals[0].sequence))
    assert all(span.trace_id in shown.output for span in attempts[:2])
    assert not [line for line in str(collector.spans).splitlines() if "token-in" in line or "in-the-query" in line]
