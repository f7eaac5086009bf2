"""Who gets a job that names no destination."""

import re

import psycopg
import pytest
from psycopg import sql

from tests.schema.rows import Connection, column, insert, rows, subscribe, value


async def destinations(connection: Connection) -> list[str | None]:
    """Whose jobs there are, in order of their ids."""
    return await column(connection, "SELECT destination FROM outbox.job ORDER BY id")


@pytest.mark.parametrize(
    ("topic", "receivers"),
    [
        ("order.paid", ["exact", "everything", "orders"]),
        ("order.paid.late", ["everything", "orders"]),
        ("order.", ["everything", "orders"]),
        ("orders.paid", ["everything"]),
        ("order", ["everything"]),
        ("shop.order.paid", ["everything"]),
        ("Order.paid", ["everything"]),
        ("order_paid", ["everything"]),
    ],
)
async def test_a_topic_reaches_its_exact_name_its_prefixes_and_everything(
    connection: Connection, producer: Connection, topic: str, receivers: list[str]
) -> None:
    await subscribe(connection, "exact", "order.paid")
    await subscribe(connection, "orders", "order.*")
    await subscribe(connection, "everything", "*")
    await subscribe(connection, "nothing")
    await insert(producer, destination=None, topic=topic)
    assert sorted(str(name) for name in await destinations(connection)) == sorted(receivers)


async def test_a_destination_that_subscribes_twice_gets_one_job(connection: Connection, producer: Connection) -> None:
    await subscribe(connection, "shop", "*", "order.*", "order.paid", "order.paid")
    await insert(producer, destination=None)
    assert await destinations(connection) == ["shop"]


async def test_a_named_destination_is_the_only_one_registered_or_not(
    connection: Connection, producer: Connection
) -> None:
    await subscribe(connection, "everything", "*")
    await insert(producer, destination="newcomer")
    assert await destinations(connection) == ["newcomer"]


async def test_a_topic_without_subscriber_stays_as_unrouted(connection: Connection, producer: Connection) -> None:
    await subscribe(connection, "crm", "invoice.*")
    job = await insert(producer, destination=None)
    assert await rows(connection, "SELECT id, destination, status FROM outbox.job") == [(job, None, "unrouted")]


async def test_a_retired_destination_gets_nothing(connection: Connection, producer: Connection) -> None:
    await subscribe(connection, "old", "*")
    await connection.execute("UPDATE outbox.destination SET retired_at = now()")
    await insert(producer, destination=None)
    assert await destinations(connection) == [None]


async def test_a_paused_destination_gets_its_job(connection: Connection, producer: Connection) -> None:
    await subscribe(connection, "shop", "*")
    await connection.execute("UPDATE outbox.destination SET paused_at = now(), paused_why = 'closed'")
    await insert(producer, destination=None)
    assert await destinations(connection) == ["shop"]


async def test_returning_answers_with_the_first_copy(connection: Connection, producer: Connection) -> None:
    for name in ("c", "a", "b"):
        await subscribe(connection, name, "*")
    job = await insert(producer, destination=None)
    assert await rows(connection, "SELECT id, destination FROM outbox.job ORDER BY id") == [
        (job, "a"),
        (job + 1, "b"),
        (job + 2, "c"),
    ]


@pytest.mark.parametrize(
    "content",
    [
        {"payload": ' {"b":1.10,"a": "\\u0000"} '},
        {"body": b"\x00\xff", "content_type": "application/octet-stream"},
    ],
    ids=["payload", "body"],
)
async def test_copies_differ_in_id_and_destination_only(
    connection: Connection, producer: Connection, content: dict[str, object]
) -> None:
    for name in ("one", "two", "three"):
        await subscribe(connection, name, "*")
    await insert(
        producer, destination=None, entity_key="order-1", run_at="2222-02-02", priority=3, max_attempts=5,
        headers='{"X-Shop": "7"}', traceparent="00-a-b-01", tracestate="x=y", **content,
    )  # fmt: skip
    names = await column(
        connection,
        "SELECT attname FROM pg_attribute WHERE attrelid = 'outbox.job'::regclass AND attnum > 0"
        " AND attname NOT IN ('id', 'destination')",
    )
    texts = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(name)) for name in names)
    copies = await rows(connection, sql.SQL("SELECT {} FROM outbox.job").format(texts))
    assert len(copies) == 3
    assert len(set(copies)) == 1
    copy = dict(zip(names, copies[0], strict=True))
    assert (copy["entity_key"], copy["priority"], copy["max_attempts"]) == ("order-1", "3", "5")
    assert copy["run_at"] == copy["scheduled_at"]
    assert copy["payload"] == content.get("payload")
    assert copy["body"] == ("\\x00ff" if "body" in content else None)


async def test_each_event_has_one_idempotency_key_for_all_its_copies(
    connection: Connection, producer: Connection
) -> None:
    await subscribe(connection, "one", "*")
    await subscribe(connection, "two", "*")
    await insert(producer, destination=None)
    await insert(producer, destination=None)
    await insert(producer, destination=None, idempotency_key=None, priority=None)
    await insert(producer, destination=None, idempotency_key="mine")
    query = "SELECT idempotency_key FROM outbox.job GROUP BY 1 HAVING count(*) = 2 AND count(DISTINCT destination) = 2"
    keys = await column(connection, query)
    assert len(keys) == 4
    assert "mine" in keys


BROKEN = {
    "a column is renamed": "ALTER TABLE outbox.destination RENAME COLUMN topics TO subjects",
    "a column is dropped": "ALTER TABLE outbox.destination DROP COLUMN retired_at",
    "a column has another type": "DROP INDEX outbox.destination_topics; ALTER TABLE outbox.destination"
    " ALTER COLUMN topics DROP DEFAULT, ALTER COLUMN topics TYPE jsonb USING to_jsonb(topics)",
    "it is gone": "DROP TABLE outbox.destination",
    "the owner may not read it": "ALTER FUNCTION outbox.route() OWNER TO outbox_reader;"
    "GRANT INSERT ON outbox.job TO outbox_reader; REVOKE ALL ON outbox.destination FROM outbox_reader",
}


@pytest.mark.parametrize("fault", BROKEN)
async def test_a_broken_registry_never_fails_the_business_transaction(connection: Connection, fault: str) -> None:
    await subscribe(connection, "shop", "*")
    warnings: list[str] = []
    connection.add_notice_handler(lambda notice: warnings.append(notice.message_primary or ""))
    async with connection.transaction(force_rollback=True):
        await connection.execute("SET LOCAL ROLE schema_producer")
        await insert(connection, destination=None)  # its plan is cached before the fault
        await connection.execute("RESET ROLE")
        await connection.execute(BROKEN[fault].encode())
        await connection.execute("SET LOCAL ROLE schema_producer")
        first = await insert(connection, destination=None)
        second = await insert(connection, destination=None)
        await connection.execute("RESET ROLE")
        query = "SELECT id, status FROM outbox.job WHERE destination IS NULL ORDER BY id"
        assert await rows(connection, query) == [(first, "unrouted"), (second, "unrouted")]
    assert len(warnings) == 2
    assert all('routing of topic "order.paid" failed' in text for text in warnings)


async def test_routing_burns_no_transaction_id(connection: Connection, producer: Connection) -> None:
    for name in ("one", "two", "three"):
        await subscribe(connection, name, "*")
    async with producer.transaction():
        for _ in range(5):
            await insert(producer, destination=None)
        xid = await value(producer, "SELECT pg_current_xact_id()::text")
    assert await column(connection, "SELECT xmin::text FROM outbox.job") == [xid] * 15


async def test_many_rows_of_one_insert_keep_their_order_in_each_lane(
    connection: Connection, producer: Connection
) -> None:
    await subscribe(connection, "one", "*")
    await subscribe(connection, "two", "*")
    await producer.execute(
        "INSERT INTO outbox.job (topic, entity_key, payload)"
        " SELECT 'x', 'order-' || n % 3, to_json(n) FROM generate_series(1, 300) AS n"
    )
    await assert_in_order(connection, 300)


async def test_copy_keeps_the_order_in_each_lane(connection: Connection, producer: Connection) -> None:
    await subscribe(connection, "one", "*")
    await subscribe(connection, "two", "*")
    async with (
        producer.cursor() as cursor,
        cursor.copy("COPY outbox.job (topic, entity_key, payload) FROM STDIN") as copy,
    ):
        for n in range(1, 301):
            await copy.write_row(["x", f"order-{n % 3}", str(n)])
    await assert_in_order(connection, 300)


async def test_rows_of_one_transaction_keep_their_order_in_each_lane(
    connection: Connection, producer: Connection
) -> None:
    await subscribe(connection, "one", "*")
    await subscribe(connection, "two", "*")
    async with producer.transaction():
        for n in range(1, 31):
            await insert(producer, destination=None, entity_key=f"order-{n % 3}", payload=str(n))
    await assert_in_order(connection, 30)


async def assert_in_order(connection: Connection, jobs: int) -> None:
    """Two destinations got the numbers 1 to `jobs`, by id rising in each lane."""
    query = "SELECT destination, entity_key, array_agg(payload::text::int ORDER BY id) FROM outbox.job GROUP BY 1, 2"
    lanes = await rows(connection, query)
    assert len(lanes) == 6
    assert all(numbers == sorted(numbers) for _, _, numbers in lanes)
    assert sorted(n for _, _, numbers in lanes for n in numbers) == sorted([*range(1, jobs + 1)] * 2)


async def test_a_rollback_leaves_nothing(connection: Connection, producer: Connection) -> None:
    await subscribe(connection, "one", "*")
    await subscribe(connection, "two", "*")
    async with producer.transaction(force_rollback=True):
        await insert(producer, destination=None)
    assert await destinations(connection) == []


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
async def test_a_producer_may_use_any_isolation_level(connection: Connection, producer: Connection, level: str) -> None:
    await subscribe(connection, "one", "*")
    await subscribe(connection, "two", "*")
    await producer.execute(f"SET default_transaction_isolation = '{level.lower()}'".encode())
    await insert(producer, destination=None)
    assert await destinations(connection) == ["one", "two"]


async def test_a_registry_that_somebody_locks_holds_up_the_business_transaction_for_a_moment_only(
    connection: Connection, producer: Connection, database: str
) -> None:
    await subscribe(connection, "shop", "*")
    warnings: list[str] = []
    producer.add_notice_handler(lambda notice: warnings.append(notice.message_primary or ""))
    async with await psycopg.AsyncConnection.connect(database) as altering:
        await altering.execute("LOCK TABLE outbox.destination IN ACCESS EXCLUSIVE MODE")
        # Without a limit of the look-up's own this waits for the lock, until this limit cancels all of it.
        await producer.execute("SET statement_timeout = '20s'")
        job = await insert(producer, destination=None)
    assert await rows(connection, "SELECT id, destination, status FROM outbox.job") == [(job, None, "unrouted")]
    assert "lock timeout" in warnings[0]
    assert await value(producer, "SELECT current_setting('lock_timeout')") == "0"


MALFORMED: dict[str, str | list[str]] = {
    "no element": "{}",
    "a null": "{NULL}",
    "empty words": ["", ".", ".*", "**", "*.", "order*", "order.**", "order.paid."],
    "two dimensions": "{{order.*,x},{y,z}}",
    "another lower bound": "[5:5]={order.*}",
    "patterns of other languages": ["order.%", "order._aid", "order.(", "order\\.paid", "%", ".+"],
}
MATCHING = {"two dimensions", "another lower bound"}


@pytest.mark.parametrize("topics", MALFORMED)
async def test_malformed_topics_match_nothing_or_what_they_say_and_fail_no_insert(
    connection: Connection, producer: Connection, topics: str
) -> None:
    statement = "INSERT INTO outbox.destination (name, topics) VALUES ('odd', %s::text[])"
    await connection.execute(statement, (MALFORMED[topics],))
    await insert(producer, destination=None, topic="order.paid")
    assert await destinations(connection) == ["odd" if topics in MATCHING else None]


async def test_a_thousand_destinations_are_told_apart_and_a_topic_of_all_reaches_each_once(
    connection: Connection, producer: Connection
) -> None:
    await connection.execute(
        "INSERT INTO outbox.destination (name, topics)"
        " SELECT 'd' || n, ARRAY['all.of.them', 'only.' || n, 'group.' || n % 10 || '.*']"
        "   FROM generate_series(1, 1000) n"
    )
    await insert(producer, destination=None, topic="only.77")
    assert await destinations(connection) == ["d77"]
    await insert(producer, destination=None, topic="group.7.x")
    assert len(await destinations(connection)) == 1 + 100
    await insert(producer, destination=None, topic="all.of.them")
    names = await column(connection, "SELECT destination FROM outbox.job WHERE topic = 'all.of.them' ORDER BY id")
    assert sorted(map(str, names)) == sorted(f"d{n}" for n in range(1, 1001))


async def test_a_look_up_among_a_thousand_destinations_reads_their_index(connection: Connection) -> None:
    await connection.execute(
        "INSERT INTO outbox.destination (name, topics)"
        " SELECT 'd' || n, ARRAY['only.' || n] FROM generate_series(1, 1000) n"
    )
    await connection.execute("ANALYZE outbox.destination")
    [[source]] = await rows(connection, "SELECT prosrc FROM pg_proc WHERE proname = 'subscribers'")
    query = re.search(r"ARRAY\(\s*(SELECT d\.name.*)\);", source, re.DOTALL)
    assert query is not None
    plan = await column(connection, f"EXPLAIN {query[1].replace('subscribers.topic', repr('only.77'))}")
    assert any("destination_topics" in str(line) for line in plan)
