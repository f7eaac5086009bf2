"""One structured event for each change that matters: what stands in a line, and what never does."""

import io
import json
import logging
import random
from collections.abc import Iterator

import psycopg
import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from relay.deliver import Deliverer
from relay.model import Destination, Job
from relay.telemetry import LogFormat, configure_logging, event
from relay.telemetry.export import exporter_of
from relay.telemetry.traces import Traces
from tests.conftest import Connection
from tests.receiver import Receiver, status
from tests.service.replica import Installation
from tests.traces.collector import Collector

PAYLOAD = '{"card": 4111}'
BUSY_AT = """
SELECT query_start
  FROM pg_stat_activity
 WHERE application_name LIKE 'relay %' AND datname = current_database()
"""


class Terminal(io.StringIO):
    """Standard error that a person looks at."""

    def isatty(self) -> bool:
        """It is."""
        return True


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Nothing of these settings outlives a test."""
    root, relay = logging.getLogger(), logging.getLogger("relay")
    handlers, levels = root.handlers[:], (root.level, relay.level)
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    relay.setLevel(levels[1])


def printed(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, form: LogFormat = "auto") -> io.StringIO:
    """What is printed from now on."""
    monkeypatch.setattr("sys.stderr", stream)
    configure_logging("info", form)
    return stream


def test_a_terminal_gets_text_and_everything_else_json(monkeypatch: pytest.MonkeyPatch) -> None:
    text, lines = printed(monkeypatch, Terminal()), io.StringIO()
    event(logging.WARNING, "job_dead", job=7, why="503 Service Unavailable")
    assert text.getvalue()[13:] == 'warning job_dead job=7 why="503 Service Unavailable"\n'
    lines = printed(monkeypatch, lines)
    event(logging.WARNING, "job_dead", job=7, why="503 Service Unavailable")
    line = json.loads(lines.getvalue())
    assert line.pop("at").endswith("+00:00")
    assert line == {"level": "warning", "event": "job_dead", "job": 7, "why": "503 Service Unavailable"}


@pytest.mark.parametrize("form", ["json", "text"])
def test_an_event_is_one_line_whatever_somebody_else_said(monkeypatch: pytest.MonkeyPatch, form: LogFormat) -> None:
    lines = printed(monkeypatch, io.StringIO(), form)
    event(logging.INFO, "conflict", why="two\nlines \x1b[31mand red", trace_id=None)
    [line] = lines.getvalue().splitlines()
    assert "\x1b" not in line
    assert "trace_id" not in line


def test_what_a_library_says_is_an_event_without_the_credentials_of_urls(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = printed(monkeypatch, io.StringIO())
    logging.getLogger("some.library").warning("no %s", "http://user:password@host/path?token=1 (again)")
    line = json.loads(lines.getvalue())
    assert (line["event"], line["logger"]) == ("library", "some.library")
    assert line["text"] == "no http://…@host/path?… (again)"


def test_a_header_for_the_collector_that_cannot_be_read_is_said_without_its_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = printed(monkeypatch, io.StringIO())
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization: Bearer the-token")
    exporter_of("http/protobuf").shutdown()
    assert "Header format invalid" in lines.getvalue()
    assert "the-token" not in lines.getvalue()


@pytest.mark.parametrize("form", ["json", "text"])
async def test_a_traceback_says_where_but_not_with_which_row(
    monkeypatch: pytest.MonkeyPatch, connection: Connection, form: LogFormat
) -> None:
    lines = printed(monkeypatch, io.StringIO(), form)
    try:
        try:
            await connection.execute("INSERT INTO outbox.job (topic, payload) VALUES ('', %s)", (PAYLOAD,))
        except psycopg.Error as refused:
            raise RuntimeError("a settle failed") from refused
    except RuntimeError as bug:
        event(logging.ERROR, "loop_crashed", fault=bug)
    found = lines.getvalue()
    assert "test_log.py" in found
    assert "job_topic_is_dotted_words" in found
    assert "a settle failed" in found
    assert PAYLOAD not in found


async def test_a_crash_of_an_attempt_names_its_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = printed(monkeypatch, io.StringIO())
    exported = InMemorySpanExporter()
    traces = Traces(exported, replica="one")

    async def crash(*_: object) -> None:
        raise RuntimeError("a bug")

    job = Job(7, "shop", "t", None, "key", "application/json", b"{}", {}, 1, 1)
    deliverer = Deliverer(crash, random.Random(1), traces)  # type: ignore[arg-type]  # it returns nothing at all
    ended = await deliverer.deliver(job, Destination("shop", "http://shop.example/"))
    await traces.close()
    [span] = exported.get_finished_spans()
    assert span.context is not None
    trace_id = f"{span.context.trace_id:032x}"
    assert json.loads(lines.getvalue())["trace_id"] == trace_id
    assert ended.settlement.failure is not None
    assert ended.settlement.failure.trace_id == trace_id


async def test_the_events_about_a_dead_letter_and_a_paused_destination_name_the_trace(
    traced: Installation, collector: Collector, receiver: Receiver, connection: Connection
) -> None:
    receiver.answer = status(410)
    async with Receiver(status(500)) as failing:
        once = {"retry": {"max_attempts": 1}}
        traced.configure({"gone": {"url": receiver.url()}, "failing": {"url": failing.url(), **once}})
        await connection.execute(
            "INSERT INTO outbox.job (destination, topic, payload) VALUES ('gone', 't', '{}'), ('failing', 't', '{}')"
        )
        replica = await traced.start()
        paused, dead = await replica.event("destination_paused"), await replica.event("job_dead")
        assert await replica.stop() == 0
    assert paused["trace_id"] in {span.trace_id for span in collector.named("deliver gone")}
    assert [dead["trace_id"]] == [span.trace_id for span in collector.named("deliver failing")]


async def test_a_destination_that_fails_and_its_return_are_said_once_each(
    untraced: Installation, receiver: Receiver, connection: Connection
) -> None:
    receiver.answer = status(500)
    untraced.configure({"shop": {"url": receiver.url()}})
    await connection.execute(
        "INSERT INTO outbox.job (destination, topic, payload) SELECT 'shop', 't', '{}' FROM generate_series(1, 40)"
    )
    replica = await untraced.start()
    opened = await replica.event("breaker_opened", destination="shop")
    assert (opened["level"], opened["why"]) == ("warning", "500 Internal Server Error")
    receiver.answer = status(204)
    await replica.event("breaker_closed", destination="shop")
    assert await replica.stop() == 0
    assert (len(replica.logged("breaker_opened")), len(replica.logged("breaker_closed"))) == (1, 1)


async def test_a_replica_that_is_idle_logs_nothing(
    traced: Installation, collector: Collector, receiver: Receiver, connection: Connection
) -> None:
    traced.environment["RELAY_LOG_LEVEL"] = "debug"
    traced.configure({"shop": {"url": receiver.url()}}, replica={"poll_s": 0.01})
    assert (await traced.command("sync")).code == 0
    replica = await traced.start()
    polls: set[object] = set()
    while len(polls) < 20:
        found = await connection.execute(BUSY_AT)
        polls |= {row[0] for row in await found.fetchall()}
    # Spans are exported at the end at the latest.
    assert await replica.stop() == 0
    assert [each["event"] for each in replica.events] == ["replica_started", "stopping", "replica_stopped"]
    assert collector.spans == []
