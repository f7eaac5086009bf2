"""Who decides which attempts are spans, and what the receiver is told of it."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable

import pytest
from aiohttp import web as http
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from relay.deliver import Deliverer, Send
from relay.model import Answer, Destination, Job, Settlement
from relay.rules.request import valid_traceparent
from relay.telemetry.traces import Traces
from tests.conftest import Connection
from tests.metrics.scrape import Web, free_port
from tests.receiver import Arrival, Receiver
from tests.service.replica import Installation
from tests.traces.collector import Collector

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN_ID = "00f067aa0ba902b7"
SAMPLED = f"00-{TRACE_ID}-{SPAN_ID}-01"
UNSAMPLED = f"00-{TRACE_ID}-{SPAN_ID}-00"
STATE = "congo=t61rcWkgMzE"
MALFORMED = ["nonsense", "", SAMPLED.upper(), f"00-{'0' * 32}-{SPAN_ID}-01", "ff" + SAMPLED[2:], "x" * 100_000]
SHOP = Destination("shop", "https://shop.example/")

INSERT = "INSERT INTO outbox.job (destination, topic, payload, traceparent) VALUES ('shop', 't', '{}', %s)"


class Lab:
    """A deliverer whose receiver answers `status`, and what came of its attempts."""

    def __init__(self, traces: Traces, exported: InMemorySpanExporter) -> None:
        self.status = 204
        self.sent: list[dict[str, str]] = []
        self._traces = traces
        self._exported = exported

    async def deliver(self, *traceparents: str | None, send: Send | None = None) -> list[Settlement]:
        """One attempt of a job for each of these contexts."""
        deliverer = Deliverer(send or self._send, random.Random(1), self._traces)
        return [
            (await deliverer.deliver(job(number, each), SHOP)).settlement for number, each in enumerate(traceparents)
        ]

    async def spans(self) -> list[ReadableSpan]:
        """What was exported, in all."""
        await self._traces.close()
        return list(self._exported.get_finished_spans())

    async def _send(self, _destination: Destination, headers: list[tuple[str, str]], _body: bytes) -> Answer:
        self.sent.append(dict(headers))
        return Answer(self.status, {}, b"")


def job(number: int, traceparent: str | None) -> Job:
    """A claimed job whose producer wrote this context."""
    return Job(
        number, "shop", "t", None, "key", "application/json", b"{}", {}, 1, 1, traceparent=traceparent, tracestate=STATE
    )


Sampling = Callable[..., Lab]


@pytest.fixture
async def sampling(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Sampling]:
    """Makes a lab with a sampler as the environment names it."""
    labs: list[Lab] = []

    def make(sampler: str = "", argument: str = "") -> Lab:
        for name, value in (("OTEL_TRACES_SAMPLER", sampler), ("OTEL_TRACES_SAMPLER_ARG", argument)):
            monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name, raising=False)
        exported = InMemorySpanExporter()
        labs.append(Lab(Traces(exported, replica="one"), exported))
        return labs[-1]

    yield make
    for lab in labs:
        await lab.spans()


def told(headers: dict[str, str]) -> bool:
    """Whether the receiver is told that the trace is sampled."""
    assert valid_traceparent(headers["traceparent"])
    return bool(int(headers["traceparent"][-2:], 16) & 1)


def ids(spans: list[ReadableSpan]) -> list[object]:
    """The jobs whose attempts are among the spans."""
    return [(span.attributes or {})["messaging.message.id"] for span in spans]


@pytest.mark.parametrize(
    ("sampler", "argument", "alone"),
    [
        ("", "", True),
        ("parentbased_always_on", "", True),
        ("parentbased_always_off", "", False),
        ("parentbased_traceidratio", "0", False),
        ("parentbased_traceidratio", "1", True),
    ],
)
async def test_the_producer_decides_and_the_variable_where_there_is_none(
    sampling: Sampling, sampler: str, argument: str, *, alone: bool
) -> None:
    lab = sampling(sampler, argument)
    await lab.deliver(SAMPLED, UNSAMPLED, None)
    assert [told(headers) for headers in lab.sent] == [True, False, alone]
    assert ids(await lab.spans()) == ["0", "2"] if alone else ["0"]


async def test_the_ratio_decides_for_jobs_without_a_context(sampling: Sampling) -> None:
    lab = sampling("parentbased_traceidratio", "0.5")
    await lab.deliver(*[None] * 400)
    spans = await lab.spans()
    assert ids(spans) == [str(number) for number, headers in enumerate(lab.sent) if told(headers)]
    # By chance less likely than one in 10^15.
    assert 120 < len(spans) < 280


async def test_the_attempt_is_linked_to_its_producer_whose_tracestate_stays_in_its_trace(sampling: Sampling) -> None:
    lab = sampling()
    await lab.deliver(SAMPLED)
    [span] = await lab.spans()
    [link] = span.links
    assert (f"{link.context.trace_id:032x}", f"{link.context.span_id:016x}") == (TRACE_ID, SPAN_ID)
    assert link.context.trace_state.to_header() == STATE
    assert span.parent is None
    assert span.context is not None
    assert lab.sent[0]["traceparent"].startswith(f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-")
    assert span.context.trace_state.to_header() == ""
    assert "tracestate" not in lab.sent[0]


async def test_a_malformed_context_is_a_span_without_a_link(sampling: Sampling) -> None:
    lab = sampling()
    await lab.deliver(*MALFORMED)
    assert [span.links for span in await lab.spans()] == [()] * len(MALFORMED)
    assert TRACE_ID not in str(lab.sent)


async def test_only_a_failure_that_is_sampled_keeps_a_trace_id(sampling: Sampling) -> None:
    lab = sampling()
    lab.status = 500
    failures = [settlement.failure for settlement in await lab.deliver(SAMPLED, UNSAMPLED)]
    [span] = await lab.spans()
    assert span.context is not None
    assert [failure and failure.trace_id for failure in failures] == [f"{span.context.trace_id:032x}", None]


async def test_an_attempt_that_is_cut_off_is_a_span_that_says_so(sampling: Sampling) -> None:
    lab, begun = sampling(), asyncio.Event()

    async def hang(*_: object) -> Answer:
        begun.set()
        await asyncio.Event().wait()
        return Answer(204, {}, b"")

    attempt = asyncio.create_task(lab.deliver(SAMPLED, send=hang))
    await begun.wait()
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    [span] = await lab.spans()
    assert (span.attributes or {})["outbox.outcome"] == "released"


async def test_a_replica_samples_as_its_producers_do_and_counts_malformed_contexts_once_a_job(
    traced: Installation, collector: Collector, receiver: Receiver, connection: Connection
) -> None:
    web = Web(free_port())
    traced.environment |= {"OTEL_TRACES_SAMPLER": "parentbased_always_off", "RELAY_WEB_PORT": str(web.port)}
    answers = iter([500])

    async def fail_once(_arrival: Arrival) -> http.StreamResponse:
        return http.Response(status=next(answers, 204))

    receiver.answer = fail_once
    traced.configure({"shop": {"url": receiver.url()}})
    for traceparent in (*MALFORMED, UNSAMPLED, None, SAMPLED):
        await connection.execute(INSERT, (traceparent,))
    replica = await traced.start()
    delivered = len(MALFORMED) + 3
    scrape = await web.scraped(lambda s: s.value("relay_jobs_delivered_total", destination="shop") == delivered)
    assert scrape.value("relay_jobs_malformed_total", destination="shop") == len(MALFORMED)
    assert len(receiver.arrivals) == delivered + 1
    assert await replica.stop() == 0
    [attempt] = collector.spans
    assert [link.trace_id for link in attempt.links] == [TRACE_ID]
