"""What a producer may insert, and the constraint that refuses the rest by name."""

import json

import pytest
from psycopg import errors

from relay.rules.request import RESERVED_HEADERS, RESERVED_PREFIXES
from tests.schema.rows import Connection, column, insert, rows, subscribe, value
from tests.schema.test_states import ILLEGAL, OTHER_TABLES

MIB = 1024 * 1024


def each(name: str, *values: object) -> list[dict[str, object]]:
    """Rows that differ in one column."""
    return [{name: value} for value in values]


def headers(*names_and_values: tuple[str, object]) -> list[dict[str, object]]:
    """Rows with one header each."""
    return each("headers", *(json.dumps(dict([pair])) for pair in names_and_values))


# Each constraint that a producer can meet, and the columns of rows that only it refuses.
REFUSED: dict[str, list[dict[str, object]]] = {
    "job_payload_or_body_but_not_both": [
        {"payload": None},
        {"payload": "{}", "body": b"x", "content_type": "text/plain"},
    ],
    "job_body_needs_a_content_type": [{"body": b"x"}],
    "job_payload_is_at_most_1_mib": [
        {"payload": json.dumps("x" * (MIB - 1))},
        {"payload": json.dumps("é" * (MIB // 2), ensure_ascii=False)},
        {"body": bytes(MIB + 1), "content_type": "text/plain"},
    ],
    "job_topic_is_dotted_words": each(
        "topic", "", ".paid", "order paid", "order.*", "bestellung.größe", "order\n", "x" * 256
    ),
    "job_destination_is_a_lower_case_name": each(
        "destination", "", "Shop", "-shop", "shop.one", "shop\n", "größe", "x" * 64
    ),
    "job_entity_key_is_1_to_512_bytes": each("entity_key", "", "x" * 513, "é" * 257, "x" * 10_000),
    "job_idempotency_key_is_visible_ascii_without_dot": each(
        "idempotency_key", "", "a.b", "a b", "a,b", "a;b", 'a"b', "a\\b", "é", "a\n", "x" * 256
    ),
    "job_priority_is_0_to_3": each("priority", 4, -1),
    "job_max_attempts_is_1_to_1000": each("max_attempts", 0, -1, 1001),
    "job_run_at_is_finite": each("run_at", "infinity"),
    "job_content_type_is_a_header_value": each(
        "content_type", "", " text/plain", "text/plain\r\nX: y", "text/plain\n", "text/größe", "x" * 256
    ),
    "job_headers_are_an_object_of_strings": [
        *each("headers", "null", '"x"', '["x"]', '[{"x": "y"}]'),
        *headers(*(("X-A", value) for value in (1, True, None, {"a": "b"}, ["x"], []))),
    ],
    "job_header_names_are_tokens": headers(
        *((name, "x") for name in ("", "a b", "a:b", "größe", "a\n", "a\r\nX", "x" * 129))
    ),
    "job_header_values_are_visible_ascii": headers(
        *(("X-A", value) for value in (" x", "x ", "a\nb", "a\r\nX: y", "größe", "\x7f", "x\n"))
    ),
    "job_headers_are_at_most_8_kib": headers(("X-A", "x" * 8192)),
    "job_headers_leave_reserved_names_alone": headers(
        *((name, "x") for name in sorted(RESERVED_HEADERS)),
        *((prefix.title() + "Other", "x") for prefix in RESERVED_PREFIXES),
        *((name, "x") for name in ("Host", "IDEMPOTENCY-KEY", "Webhook-Id", "relay-Topic")),
    ),
}


async def test_each_constraint_of_the_catalog_has_a_row_that_it_refuses(connection: Connection) -> None:
    named = await column(
        connection,
        "SELECT conname FROM pg_constraint WHERE contype IN ('c', 'p', 'u', 'x', 'f') AND conrelid IN"
        " ('outbox.job'::regclass, 'outbox.destination'::regclass, 'outbox.attempt'::regclass)",
    )
    assert sorted(named) == sorted({*REFUSED, *(case[2] for case in ILLEGAL), *(case[2] for case in OTHER_TABLES)})


@pytest.mark.parametrize("constraint", REFUSED)
async def test_wrong_input_is_refused_at_insert_by_a_constraint_that_says_why(
    producer: Connection, constraint: str
) -> None:
    refusals = []
    for columns in REFUSED[constraint]:
        with pytest.raises(errors.IntegrityError) as refused:
            await insert(producer, **columns)
        refusals.append(refused.value.diag.constraint_name)
    assert refusals == [constraint] * len(REFUSED[constraint])


async def test_wrong_input_names_the_same_constraint_when_it_is_fanned_out(
    connection: Connection, producer: Connection
) -> None:
    for name in ("one", "two"):
        await subscribe(connection, name, "*")
    for columns in ({"entity_key": "x" * 10_000}, {"idempotency_key": "a.b"}, {"topic": "a b"}, {"priority": 4}):
        with pytest.raises(errors.CheckViolation):
            await insert(producer, destination=None, **columns)
    assert await rows(connection, "SELECT id FROM outbox.job") == []


async def test_a_topic_that_is_a_whole_document_is_refused_as_any_other(
    connection: Connection, producer: Connection
) -> None:
    await subscribe(connection, "shop", "order.*")
    await producer.execute("SET statement_timeout = '5s'")
    with pytest.raises(errors.CheckViolation) as refused:
        await insert(producer, destination=None, topic="x" * 100_000)
    assert refused.value.diag.constraint_name == "job_topic_is_dotted_words"


async def test_a_row_needs_a_topic(producer: Connection) -> None:
    with pytest.raises(errors.NotNullViolation) as refused:
        await insert(producer, topic=None)
    assert refused.value.diag.column_name == "topic"


@pytest.mark.parametrize(
    "text",
    [
        r'{"name": "a\u0000b"}',
        '{"name": "👩🏽‍🚀"}',
        '{"n": 1e400}',
        '{"n": 12345678901234567890}',
        '{"a": 1, "b": 2, "a": 3}',
        '   {"b" :1,\n"a": 1.10 }\t',
        '""',
        "null",
        json.dumps("x" * (MIB - 2)),
    ],
    ids=["nul", "emoji", "huge", "20 digits", "same key twice", "spaces", "empty text", "null", "1 MiB"],
)
async def test_a_payload_is_kept_as_written(connection: Connection, producer: Connection, text: str) -> None:
    job = await insert(producer, payload=text)
    assert await value(connection, "SELECT payload::text FROM outbox.job WHERE id = %s", job) == text


async def test_a_jsonb_expression_is_accepted_as_payload(connection: Connection, producer: Connection) -> None:
    await producer.execute(
        "INSERT INTO outbox.job (destination, topic, payload) SELECT 'shop', 'x', jsonb_build_object('b', 1, 'a', 2)"
    )
    assert await value(connection, "SELECT payload::text FROM outbox.job") == '{"a": 2, "b": 1}'


async def test_a_parameter_typed_as_text_needs_a_cast(producer: Connection) -> None:
    with pytest.raises(errors.DatatypeMismatch):
        await producer.execute("INSERT INTO outbox.job (destination, topic, payload) VALUES ('shop', 'x', '{}'::text)")
    await producer.execute(
        "INSERT INTO outbox.job (destination, topic, payload) VALUES ('shop', 'x', '{}'::text::json)"
    )


@pytest.mark.parametrize("body", [b"", b"\x00\xff\r\n", bytes(MIB)], ids=["empty", "binary", "1 MiB"])
async def test_a_body_is_kept_to_the_byte(connection: Connection, producer: Connection, body: bytes) -> None:
    await insert(producer, body=body, content_type="application/octet-stream")
    assert await value(connection, "SELECT body FROM outbox.job") == body


async def test_null_means_the_default(connection: Connection, producer: Connection) -> None:
    names = ("run_at", "priority", "idempotency_key", "entity_key", "headers", "max_attempts")
    await insert(producer, **dict.fromkeys((*names, "body", "content_type", "traceparent", "tracestate")), payload="{}")
    await insert(producer)
    first, second = await rows(
        connection, "SELECT run_at = created_at, scheduled_at, priority, length(idempotency_key) FROM outbox.job"
    )
    assert first == second == (True, None, 1, 36)


async def test_a_generated_idempotency_key_differs_from_row_to_row(
    connection: Connection, producer: Connection
) -> None:
    await producer.execute(
        "INSERT INTO outbox.job (destination, topic, idempotency_key, payload)"
        " SELECT 'shop', 'x', NULL, '{}' FROM generate_series(1, 10)"
    )
    assert await value(connection, "SELECT count(DISTINCT idempotency_key) FROM outbox.job") == 10


@pytest.mark.parametrize("when", ["2001-02-03 04:05:06+00", "-infinity"])
async def test_a_run_at_in_the_past_is_now(connection: Connection, producer: Connection, when: str) -> None:
    await insert(producer, run_at=when)
    assert await rows(connection, "SELECT run_at = created_at, scheduled_at FROM outbox.job") == [(True, None)]


async def test_a_run_at_in_the_future_is_kept_also_as_what_was_asked_for(
    connection: Connection, producer: Connection
) -> None:
    await insert(producer, run_at="2222-02-02 02:02:02+00")
    query = "SELECT run_at = scheduled_at, scheduled_at = '2222-02-02 02:02:02+00', status FROM outbox.job"
    assert await rows(connection, query) == [(True, True, "pending")]


async def test_a_malformed_traceparent_is_no_error(producer: Connection) -> None:
    await insert(producer, traceparent="nonsense", tracestate="=")


@pytest.mark.parametrize(
    "columns",
    [
        {"topic": "x" * 255},
        {"topic": "shop/Order_1:paid-2.v3"},
        {"destination": "x" * 63},
        {"entity_key": "é" * 256},
        {"entity_key": " \n'\""},
        {"idempotency_key": "x" * 255},
        {"idempotency_key": "order/42:paid+{}~"},
        {"priority": 0},
        {"priority": 3},
        {"max_attempts": 1000},
        {"headers": "{}"},
        {"headers": json.dumps({"X-A": "", "x-b": "a \t b", "x" * 128: "!~"})},
        {"headers": json.dumps({"X-Hosting": "x", "My-Webhook-Id": "x", "Authorization": "Bearer x"})},
    ],
)
async def test_the_edges_of_what_is_allowed_are_accepted(producer: Connection, columns: dict[str, object]) -> None:
    await insert(producer, **columns)


async def test_a_claimed_row_is_not_read_again_by_the_constraints_on_input(connection: Connection) -> None:
    # What a later, stricter constraint would refuse must still be deliverable, so the relay's updates skip them.
    await insert(connection, status="running", claims=1, locked_by="x", locked_until="infinity", topic="not a topic")
    await connection.execute("UPDATE outbox.job SET status = 'pending', locked_by = NULL, locked_until = NULL")


async def test_a_refused_row_fails_its_whole_transaction(producer: Connection) -> None:
    async def two_rows() -> None:
        async with producer.transaction():
            await insert(producer)
            await insert(producer, priority=4)

    with pytest.raises(errors.CheckViolation):
        await two_rows()
    assert await rows(producer, "SELECT id FROM outbox.job") == []
