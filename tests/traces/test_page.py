"""docs/tracing.md has every span and attribute of the code, and no other."""

import asyncio
import re
import time

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from relay.model import Answer, Destination, ErrorClass, Failure, Job, Settlement
from relay.telemetry.traces import Traces
from tests.conftest import Connection
from tests.docs.pages import snippet, table

PAGE = "docs/tracing.md"
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
JOB = Job(7, "shop", "t", "customer@secret.example", "key", "application/json", b"payload", {"X": "y"}, 1, 1,
          traceparent=TRACEPARENT, tracestate="congo=t61rcWkgMzE")  # fmt: skip
SHOP = Destination("shop", "https://user:password@shop.example/path-token?query-token")
FAILED = Failure(ErrorClass.STATUS, "500 Internal Server Error", 0.1, 500)


async def spans() -> list[ReadableSpan]:
    """Every kind of span that there is, with everything it can have."""
    exported = InMemorySpanExporter()
    traces = Traces(exported, replica="one")
    now_s = time.monotonic()
    traces.claimed(0, now_s)
    traces.claimed(3, now_s)
    traces.settled(2, now_s)
    with traces.attempt(JOB, SHOP) as attempt:
        attempt.tell(Answer(500, {}, b"no"), Settlement(JOB, "pending", failure=FAILED))
    with pytest.raises(asyncio.CancelledError), traces.attempt(JOB, SHOP):
        raise asyncio.CancelledError
    await traces.close()
    return list(exported.get_finished_spans())


async def test_the_page_has_every_span() -> None:
    names = {span.name.replace("shop", "<destination>") for span in await spans()}
    assert {row[0].strip("`") for row in table(PAGE, "span")} == names
    assert {f"{row[1].upper()}" for row in table(PAGE, "span")} == {span.kind.name for span in await spans()}


async def test_the_page_has_every_attribute_with_the_spans_it_stands_on() -> None:
    found: dict[str, set[str]] = {}
    for span in await spans():
        for attribute in span.attributes or {}:
            found.setdefault(attribute, set()).add(span.name.split()[0])
    every = {"deliver", "claim", "settle"}
    told = {
        row[0].strip("`"): every if row[1] == "all" else every & set(re.findall(r"\w+", row[1]))
        for row in table(PAGE, "attribute")
    }
    assert told == found


async def test_nothing_that_may_be_a_secret_is_in_a_span() -> None:
    text = "".join(span.to_json() for span in await spans())
    assert "shop.example" in text
    for secret in ("user", "password", "path-token", "query-token", "payload", "customer"):
        assert secret not in text.replace("messaging.message.body.size", "")


async def test_the_example_in_sql_writes_the_context_and_leaves_nothing_behind(connection: Connection) -> None:
    await connection.execute(snippet(PAGE, "sql setting").encode())
    await connection.execute("INSERT INTO outbox.job (topic, payload) VALUES ('t', '{}')")
    found = await connection.execute("SELECT traceparent, tracestate FROM outbox.job ORDER BY id")
    assert await found.fetchall() == [(TRACEPARENT, JOB.tracestate), (None, None)]
