"""`relay.producer`: what it builds is inserted as it is, in the caller's transaction, with the current trace."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any

import asyncpg
import psycopg
import pytest
from opentelemetry import context, trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState
from psycopg.rows import dict_row
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

from relay import producer
from relay.producer import Job
from tests.docs.pages import blocks
from tests.producers.story import CREATED, TRACEPARENT, jobs
from tests.producers.test_pages import names, url

# Keys out of order and twice, spaces, numbers that no float holds, escapes.
PAYLOAD = '{ "b":1e400, "a" : 12345678901234567890,"a":"\\u0000 \\ud83d\\ude00 ☕", "c":[ ] }'
FULL = Job(
    "order.paid",
    PAYLOAD,
    entity_key="order-42",
    destination="billing",
    content_type="application/json; charset=utf-8",
    headers={"X-Shop": "north"},
    idempotency_key="key-1",
    run_at=datetime(2099, 1, 1, tzinfo=UTC),
    priority=2,
    max_attempts=7,
    traceparent=TRACEPARENT,
    tracestate="congo=t61",
)
BINARY = Job("order.paid", body=b"\x00\xff", content_type="application/octet-stream", destination="search")
COLUMNS = psycopg.sql.SQL(", ").join(map(psycopg.sql.Identifier, Job.__slots__))


def stored(owner: str) -> list[dict[str, Any]]:
    """The producer's columns of every job in the order of ids, JSON as text."""
    query = psycopg.sql.SQL("SELECT {}, payload::text AS payload FROM outbox.job ORDER BY id").format(COLUMNS)
    with psycopg.connect(owner, row_factory=dict_row) as connection:
        return connection.execute(query).fetchall()


def assert_stored(owner: str, ids: list[int]) -> None:
    """FULL and BINARY were inserted as they are."""
    full, binary = stored(owner)
    assert full == {name: getattr(FULL, name) for name in Job.__slots__}
    assert (binary["body"], binary["content_type"], binary["payload"]) == (BINARY.body, BINARY.content_type, None)
    assert (binary["priority"], binary["traceparent"]) == (1, None)
    assert ids == [1, 2]


@pytest.fixture
def unlocked(shop: str, shop_owner: str) -> str:
    """The DSN of `shop`, where jobs of an entity whose row is not locked are let through."""
    with psycopg.connect(shop_owner, autocommit=True) as connection:
        connection.execute("ALTER TABLE outbox.job DISABLE TRIGGER aa_assert_locked")
    return shop


@pytest.fixture
async def async_connection(unlocked: str) -> AsyncIterator[Any]:
    """asyncpg's."""
    connection = await asyncpg.connect(url(unlocked, "postgresql"))
    yield connection
    await connection.close()


@pytest.fixture
def current_span() -> Iterator[None]:
    """TRACEPARENT's span is the current one."""
    _, trace_id, span_id, _ = TRACEPARENT.split("-")
    state = TraceState([("congo", "t61")])
    span = SpanContext(
        int(trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=TraceFlags(1), trace_state=state
    )
    token = context.attach(trace.set_span_in_context(NonRecordingSpan(span)))
    yield
    context.detach(token)


def test_psycopg_stores_what_it_was_given(unlocked: str, shop_owner: str) -> None:
    with psycopg.connect(unlocked) as connection:
        rows = connection.execute(*producer.psycopg(FULL, BINARY)).fetchall()
    assert_stored(shop_owner, [row[0] for row in rows])


async def test_async_psycopg_stores_what_it_was_given(unlocked: str, shop_owner: str) -> None:
    async with await psycopg.AsyncConnection.connect(unlocked) as connection:
        cursor = await connection.execute(*producer.psycopg(FULL, BINARY))
        rows = await cursor.fetchall()
    assert_stored(shop_owner, [row[0] for row in rows])


async def test_asyncpg_stores_what_it_was_given(async_connection: Any, shop_owner: str) -> None:
    rows = await async_connection.fetch(*producer.asyncpg(FULL, BINARY))
    assert_stored(shop_owner, [row["id"] for row in rows])


def test_sqlalchemy_stores_what_it_was_given(unlocked: str, shop_owner: str) -> None:
    engine = create_engine(url(unlocked, "postgresql+psycopg"))
    with engine.begin() as connection:
        ids = list(connection.execute(*producer.sqlalchemy(FULL, BINARY)).scalars())
    engine.dispose()
    assert_stored(shop_owner, ids)


async def test_sqlalchemy_over_asyncpg_stores_what_it_was_given(unlocked: str, shop_owner: str) -> None:
    engine = create_async_engine(url(unlocked, "postgresql+asyncpg"))
    async with engine.begin() as connection:
        ids = list((await connection.execute(*producer.sqlalchemy(FULL, BINARY))).scalars())
    await engine.dispose()
    assert_stored(shop_owner, ids)


def test_nothing_is_committed(unlocked: str, shop_owner: str) -> None:
    with psycopg.connect(unlocked) as connection:
        connection.execute(*producer.psycopg(FULL))
        connection.rollback()
    assert stored(shop_owner) == []


def test_a_thousand_jobs_keep_their_order_and_each_answers_with_its_id(unlocked: str, shop_owner: str) -> None:
    many = [Job("order.noted", str(n), entity_key="order-42") for n in range(1000)]
    with psycopg.connect(unlocked) as connection:
        ids = [row[0] for row in connection.execute(*producer.psycopg(*many))]
    assert [job[3] for job in jobs(shop_owner) if job[0] == "billing"] == [str(n) for n in range(1000)]
    with psycopg.connect(shop_owner) as connection:
        first = connection.execute("SELECT id FROM outbox.job WHERE destination = 'billing' ORDER BY id").fetchall()
    assert [row[0] for row in first] == ids


@pytest.mark.usefixtures("current_span")
def test_the_current_span_is_written_with_each_job(unlocked: str, shop_owner: str) -> None:
    with psycopg.connect(unlocked) as connection:
        connection.execute(*producer.psycopg(Job("order.paid", "1"), Job("order.paid", "2", traceparent="00-other")))
    found = [(job["payload"], job["traceparent"], job["tracestate"]) for job in stored(shop_owner)][::2]
    assert found == [("1", TRACEPARENT, "congo=t61"), ("2", "00-other", None)]


def test_without_a_span_the_setting_of_the_transaction_counts(unlocked: str, shop_owner: str) -> None:
    with psycopg.connect(unlocked) as connection:
        connection.execute("SELECT set_config('outbox.traceparent', %s, true)", [TRACEPARENT])
        connection.execute(*producer.psycopg(Job("order.paid", "1", destination="billing")))
    assert [job["traceparent"] for job in stored(shop_owner)] == [TRACEPARENT]


def test_importing_it_imports_only_the_standard_library() -> None:
    look = "import sys; before = set(sys.modules); import relay.producer; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    foreign = {name.partition(".")[0] for name in done.stdout.split()} - sys.stdlib_module_names
    assert foreign == {"relay"}
    assert {name for name in done.stdout.split() if name.startswith("relay")} == {"relay", "relay.producer"}


@pytest.mark.parametrize(
    ("arguments", "error", "sentence"),
    [
        ({"payload": {"a": 1}}, TypeError, "is the JSON text that is to be sent, not dict; pass json.dumps"),
        ({}, ValueError, "'order.paid' has neither payload nor body; pass one"),
        ({"payload": "{}", "body": b""}, ValueError, "'order.paid' has both payload and body; pass one"),
        ({"payload": "{}", "run_at": datetime(2099, 1, 1)}, ValueError, "has no time zone: 2099-01-01"),  # noqa: DTZ001
    ],
)
def test_a_wrong_argument_is_refused_in_a_sentence(
    arguments: dict[str, Any], error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        Job("order.paid", **arguments)


def test_no_job_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="no job to insert"):
        producer.psycopg()


def test_the_docstring_is_an_example(shop: str, shop_owner: str) -> None:
    example = (producer.__doc__ or "").partition("\n\n    ")[2]
    with psycopg.connect(shop, autocommit=True) as connection:
        exec(  # noqa: S102
            "\n".join(line.removeprefix("    ") for line in example.splitlines()),
            {"connection": connection, "producer": producer, "Job": Job},
        )
    assert [job[1:4] for job in jobs(shop_owner)] == [("order.paid", "order-42", '{"order_id": 42}')] * 2


async def test_the_page_runs(shop: str, shop_owner: str, async_connection: Any) -> None:
    assert len(blocks("docs/producers/python.md", "python")) == 3
    page, orm = names("python"), names("sqlalchemy")
    orm["event"].remove(Session, "after_flush", orm["announce"])
    with psycopg.connect(shop, autocommit=True) as connection:
        paid = page["pay"](connection, 42, "19.99")
    created = await page["create"](async_connection, CREATED)
    engine = create_engine(url(shop, "postgresql+psycopg"))
    with Session(engine) as session, session.begin():
        order = session.get_one(orm["Order"], 42)
        order.status = "shipped"
        shipped = page["ship"](session, order)
    engine.dispose()
    assert [paid, *(row["id"] for row in created), shipped] == [1, 3, 5, 7, 9]
    assert [json.loads(job[3])["order_id"] for job in jobs(shop_owner)[::2]] == [42, *CREATED, 42]
