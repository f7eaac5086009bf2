"""A producer that means harm, with the rights that a producer has; what it may not do at all is in tests/schema."""

import json
from urllib.parse import unquote

import pytest
from psycopg import errors

from tests.conftest import Connection
from tests.fuzz.rows import differences
from tests.schema.rows import column, insert, subscribe, value
from tests.security.conftest import Wire
from tests.service.replica import Installation, Replica

SQL_TEXT = "'); DROP TABLE outbox.job; --"
BREAKS = "a\r\nX-Injected: 1\r\n\r\nPOST /admin HTTP/1.1\r\n"
# What each of these would do is the name of the test's; none is refused, since none is wrong as a value.
HOSTILE: dict[str, dict[str, object]] = {
    "SQL in each text": {
        "entity_key": SQL_TEXT, "payload": json.dumps(SQL_TEXT), "tracestate": SQL_TEXT, "traceparent": SQL_TEXT,
        "headers": json.dumps({"X-A": SQL_TEXT}), "idempotency_key": "1';DROP".replace(";", "--"),
    },
    "line breaks in the entity key": {"entity_key": BREAKS},
    "line breaks in the trace context": {"traceparent": BREAKS, "tracestate": BREAKS},
    "line breaks in the body": {"body": BREAKS.encode(), "content_type": "text/plain"},
    "a path in the topic": {"topic": "a/../../admin"},
    "an address in the topic": {"topic": "a://169.254.169.254/latest"},
    "formats": {"entity_key": "%s {} %(x)s ${HOME}", "headers": json.dumps({"X-A": "%s {0} ${HOME} $(id)"})},
    "terminal and text tricks": {"entity_key": "\x1b[2J\u202egro.live\u2028"},
    "a media type that is a list": {"body": b"x", "content_type": "text/plain, text/html; boundary=x"},
}  # fmt: skip


async def running(installation: Installation, wire: Wire, **settings: object) -> Replica:
    """A replica that delivers for `shop`."""
    installation.configure({"shop": {"url": wire.url, "secrets": [], "signed": False, **settings}})
    return await installation.start()


async def test_a_value_is_sent_as_it_is_and_is_nothing_but_a_value(
    installation: Installation, producer: Connection, connection: Connection, wire: Wire
) -> None:
    given = {}
    for hostile in HOSTILE.values():
        columns = {"topic": "order.paid", **({} if "body" in hostile else {"payload": "{}"}), **hostile}
        given[await insert(producer, **columns)] = columns
    await running(installation, wire)
    for (first, headers, body), columns in zip(await wire.wait_for(*given), given.values(), strict=True):
        assert first == b"POST /hook?of=the-operator HTTP/1.1"
        own = json.loads(str(columns.pop("headers", "{}")))
        assert {key: text for key, text in headers if key in own} == own
        others = [(key, text) for key, text in headers if key not in own]
        assert differences((b"POST / HTTP/1.1", others, body), columns) == []
    assert await value(connection, "SELECT count(*) FROM outbox.job") == len(given)


async def test_no_row_replaces_a_credential_of_the_operator_in_any_spelling(
    installation: Installation, producer: Connection, wire: Wire
) -> None:
    installation.environment["TOKEN"] = "Bearer the-operators"
    own = {"AUTHORIZATION": "Bearer stolen", "authorization": "Basic x", "X-Kept": "1"}
    job = await insert(producer, headers=json.dumps(own))
    await running(installation, wire, headers={"Authorization": {"env": "TOKEN"}})
    [(_, headers, _)] = await wire.wait_for(job)
    assert [text for name, text in headers if name.lower() == "authorization"] == ["Bearer the-operators"]
    assert ("X-Kept", "1") in headers


async def test_a_key_that_another_producer_used_hides_neither_job(
    installation: Installation, producer: Connection, connection: Connection, wire: Wire
) -> None:
    # Receivers that remember keys will drop the second: whoever may insert is trusted that far.
    theirs = await insert(connection, idempotency_key="order-42", payload='"theirs"')
    ours = await insert(producer, idempotency_key="order-42", payload='"forged"')
    await running(installation, wire)
    assert [body for _, _, body in await wire.wait_for(theirs, ours)] == [b'"theirs"', b'"forged"']


async def test_a_destination_that_is_not_sent_to_gets_nothing_and_its_job_waits(
    installation: Installation, producer: Connection, connection: Connection, wire: Wire
) -> None:
    for name in ("shop", "paused", "retired"):
        await subscribe(connection, name)
    await connection.execute("UPDATE outbox.destination SET paused_at = now(), paused_why = 'x' WHERE name = 'paused'")
    await connection.execute("UPDATE outbox.destination SET retired_at = now() WHERE name = 'retired'")
    waits = [await insert(producer, destination=name) for name in ("paused", "retired", "nobody")]
    goes = await insert(producer)
    installation.configure({name: {"url": wire.url} for name in ("shop", "paused")})
    await installation.start()
    await wire.wait_for(goes)
    found = await column(connection, "SELECT (status, attempts)::text FROM outbox.job WHERE id = ANY (%s)", waits)
    assert found == ["(pending,0)"] * 3
    assert len(wire.requests) == 1


@pytest.mark.parametrize("subscribed", [True, False])
async def test_nothing_that_a_producer_made_runs_with_the_rights_of_the_routing(
    connection: Connection, producer: Connection, *, subscribed: bool
) -> None:
    if subscribed:
        await subscribe(connection, "shop", "order.*")
    await producer.execute("DROP SCHEMA IF EXISTS evil CASCADE")
    await producer.execute("CREATE SCHEMA evil")
    for name, arguments, returns in (
        ("cardinality", "text[]", "integer"),
        ("left", "text, integer", "text"),
        ("length", "text", "integer"),
        ("substr", "text, integer, integer", "text"),
        ("unnest", "text[]", "text"),
        ("now", "", "timestamptz"),
        ("gen_random_uuid", "", "uuid"),
        ("overlap", "text[], text[]", "boolean"),
    ):
        await producer.execute(
            f"CREATE FUNCTION evil.{name}({arguments}) RETURNS {returns} LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE EXCEPTION 'ran as %', current_user; END $$".encode()
        )
    await producer.execute("CREATE OPERATOR evil.&& (LEFTARG = text[], RIGHTARG = text[], FUNCTION = evil.overlap)")
    await producer.execute("CREATE TEMP TABLE unnest (name text)")
    await producer.execute("SET search_path = evil, pg_temp, outbox, pg_catalog")
    await insert(producer, destination=None, idempotency_key=None, priority=None)
    assert await value(connection, "SELECT status FROM outbox.job") == ("pending" if subscribed else "unrouted")
    await producer.execute("DROP SCHEMA evil CASCADE")


@pytest.mark.parametrize(
    "statement",
    [
        "SET session_replication_role = replica",
        "SET ROLE outbox_relay",
        "SET SESSION AUTHORIZATION postgres",
        "CREATE FUNCTION outbox.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE RULE mine AS ON INSERT TO outbox.job DO INSTEAD NOTHING",
        "CREATE POLICY mine ON outbox.job USING (false)",
        "COMMENT ON TABLE outbox.job IS 'mine'",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename <> current_user AND pid <> 0",
        *(
            f"DO 'BEGIN LOCK TABLE outbox.job IN {mode} MODE; END'"
            for mode in ("SHARE UPDATE EXCLUSIVE", "SHARE ROW EXCLUSIVE", "EXCLUSIVE", "ACCESS EXCLUSIVE")
        ),
    ],
)
async def test_a_producer_may_neither_become_another_nor_turn_the_rules_off_nor_lock_the_table(
    connection: Connection, producer: Connection, statement: str
) -> None:
    assert await value(connection, "SELECT 1") == 1  # somebody else is connected
    with pytest.raises(errors.InsufficientPrivilege):
        await producer.execute(statement.encode())


async def test_locks_and_notifications_of_a_producer_hold_up_no_delivery(
    installation: Installation, producer: Connection, connection: Connection, wire: Wire
) -> None:
    # The numbers are no secret: those of a migration, of the sample, and of an entity.
    await producer.execute("SELECT pg_advisory_lock(122550254464888), pg_advisory_lock(122550254464889)")
    await producer.execute("SELECT pg_advisory_lock(hashtextextended('order-1', 7236828793))")
    await producer.execute("SET idle_in_transaction_session_timeout = 0")
    await producer.execute("BEGIN")
    uncommitted = await insert(producer, entity_key="order-1")
    replica = await running(installation, wire)
    for payload in ("shop", "nobody", "", "x" * 7_999, SQL_TEXT, "\x1b[2J"):
        await connection.execute("SELECT pg_notify('outbox', %s)", [payload])
    jobs = [await insert(connection, entity_key="order-1") for _ in range(3)]
    await wire.wait_for(*jobs)
    await producer.execute("COMMIT")
    await wire.wait_for(uncommitted)
    assert replica.process.poll() is None


async def test_a_value_far_over_its_limit_costs_its_producer_an_error_and_nobody_else(
    producer: Connection, connection: Connection
) -> None:
    for columns, name in (
        ({"payload": json.dumps("x" * 20_000_000)}, "job_payload_is_at_most_1_mib"),
        ({"body": bytes(20_000_000), "content_type": "text/plain"}, "job_payload_is_at_most_1_mib"),
        ({"headers": json.dumps({f"X-{n}": "v" for n in range(200_000)})}, "job_headers_are_at_most_8_kib"),
        ({"entity_key": "k" * 5_000_000}, "job_entity_key_is_1_to_512_bytes"),
        ({"idempotency_key": "k" * 5_000_000}, "job_idempotency_key_is_visible_ascii_without_dot"),
        ({"topic": "t" * 5_000_000, "destination": None}, "job_topic_is_dotted_words"),
    ):
        with pytest.raises(errors.CheckViolation) as refused:
            await insert(producer, **columns)
        assert refused.value.diag.constraint_name == name
    assert await column(connection, "SELECT id FROM outbox.job") == []


async def test_a_payload_that_is_nothing_but_depth_is_refused_or_sent_and_no_bug(
    installation: Installation, producer: Connection, wire: Wire
) -> None:
    with pytest.raises((errors.StatementTooComplex, errors.InvalidTextRepresentation)):
        await insert(producer, payload="[" * 500_000 + "]" * 500_000)
    job = await insert(producer, payload="[" * 3_000 + "]" * 3_000)
    await running(installation, wire)
    [(_, headers, body)] = await wire.wait_for(job)
    assert body == b"[" * 3_000 + b"]" * 3_000
    assert unquote(dict(headers)["Relay-Topic"]) == "order.paid"
