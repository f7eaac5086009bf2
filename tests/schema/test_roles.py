"""What each role may do, and that it may do nothing else."""

from collections.abc import Sequence

from psycopg import errors, sql
from psycopg.conninfo import make_conninfo

from relay.admin import Admin
from relay.database import Database
from tests.schema.rows import Connection, column, insert, value

WRITABLE = {
    "topic", "destination", "entity_key", "payload", "body", "content_type", "headers", "idempotency_key", "run_at",
    "priority", "max_attempts", "traceparent", "tracestate",
}  # fmt: skip

EVERYBODY_REFUSED = [
    "TRUNCATE outbox.job",
    "TRUNCATE outbox.destination",
    "TRUNCATE outbox.operation",
    "TRUNCATE outbox.sample",
    "DROP TABLE outbox.job",
    "ALTER TABLE outbox.job ADD COLUMN mine text",
    "ALTER TABLE outbox.job DISABLE TRIGGER ALL",
    "CREATE TABLE outbox.mine ()",
    "CREATE INDEX ON outbox.job (topic)",
    "CREATE TRIGGER mine BEFORE UPDATE ON outbox.job EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    "CREATE OR REPLACE FUNCTION outbox.wake() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
    "ALTER SEQUENCE outbox.job_id_seq RESTART",
    "SELECT setval('outbox.job_id_seq', 1)",
    "SELECT nextval('outbox.job_id_seq')",
    "SELECT outbox.route()",
    "SELECT outbox.normalise()",
    "SELECT outbox.wake()",
    "INSERT INTO outbox.migration (version, name, checksum, old_replicas_may_run) VALUES (99, 'x', 'x', true)",
    "DELETE FROM outbox.migration",
    "DELETE FROM outbox.destination",
    "INSERT INTO outbox.job (id, topic, payload) OVERRIDING SYSTEM VALUE VALUES (1, 'x', '{}')",
    "COPY outbox.job FROM PROGRAM 'true'",
]
PRODUCER_REFUSED = [
    "UPDATE outbox.job SET topic = 'y'",
    "DELETE FROM outbox.job",
    "SELECT * FROM outbox.job",
    "SELECT payload FROM outbox.job",
    "SELECT status FROM outbox.job",
    "SELECT id FROM outbox.job WHERE entity_key = 'order-1'",
    "SELECT id FROM outbox.job FOR UPDATE",
    "INSERT INTO outbox.job (topic, payload) VALUES ('x', '{}') RETURNING status",
    "INSERT INTO outbox.job (topic, payload) VALUES ('x', '{}') ON CONFLICT (id) DO UPDATE SET topic = 'y'",
    "COPY outbox.job TO STDOUT",
    "DO 'BEGIN LOCK TABLE outbox.job IN SHARE MODE; END'",
    "SELECT setval('outbox.idle', 0)",
    "SELECT nextval('outbox.idle')",
    "SELECT name FROM outbox.destination",
    "INSERT INTO outbox.destination (name) VALUES ('mine')",
    "UPDATE outbox.destination SET topics = '{}'",
    "SELECT job_id FROM outbox.attempt",
    "INSERT INTO outbox.attempt DEFAULT VALUES",
    "UPDATE outbox.attempt SET detail = 'nothing happened'",
    "DELETE FROM outbox.attempt",
    "SELECT version FROM outbox.migration",
    "SELECT detail FROM outbox.operation",
    "INSERT INTO outbox.operation (actor, verb) VALUES ('me', 'discard')",
    "UPDATE outbox.operation SET actor = 'somebody else'",
    "DELETE FROM outbox.operation",
    "SELECT gauges FROM outbox.sample",
    "INSERT INTO outbox.sample (taken_by, gauges) VALUES ('me', '[]')",
    "UPDATE outbox.sample SET gauges = '[]'",
    "DELETE FROM outbox.sample",
    "SELECT outbox.subscribers('x')",
    "SELECT outbox.route_unrouted('{1}')",
]
VIEWER_REFUSED = [
    *(text for text in PRODUCER_REFUSED if not text.startswith(("SELECT", "COPY")) or "val(" in text),
    "SELECT id FROM outbox.job FOR UPDATE",
    "INSERT INTO outbox.job (topic, payload) VALUES ('x', '{}')",
    "SELECT outbox.subscribers('x')",
    "SELECT outbox.route_unrouted('{1}')",
]
REPLICA_REFUSED = [
    "INSERT INTO outbox.job (topic, payload) VALUES ('x', '{}')",
    "UPDATE outbox.operation SET actor = 'somebody else'",
    "DELETE FROM outbox.operation",
    "DELETE FROM outbox.sample",
]


async def refused(connection: Connection, statement: str | sql.Composed) -> bool:
    """Whether PostgreSQL says that this role may not."""
    try:
        await connection.execute(statement.encode() if isinstance(statement, str) else statement)
    except errors.InsufficientPrivilege:
        return True
    return False


async def accepted(connection: Connection, statements: Sequence[str]) -> list[str]:
    """Those of these statements that are not refused."""
    return [statement for statement in statements if not await refused(connection, statement)]


async def allowed(owner: Connection, connection: Connection, statement: str) -> set[str]:
    """The columns of `outbox.job` with which a statement is not refused."""
    query = "SELECT attname FROM pg_attribute WHERE attrelid = 'outbox.job'::regclass AND attnum > 0"
    return {
        name
        for name in await column(owner, query)
        if not await refused(connection, sql.SQL(statement).format(sql.Identifier(name)))
    }


async def test_a_producer_may_do_nothing_else(producer: Connection) -> None:
    assert await accepted(producer, [*EVERYBODY_REFUSED, *PRODUCER_REFUSED]) == []


async def test_a_relay_may_neither_change_the_schema_nor_make_up_jobs(replica: Connection) -> None:
    assert await accepted(replica, [*EVERYBODY_REFUSED, *REPLICA_REFUSED]) == []


async def test_a_reader_may_change_nothing(viewer: Connection) -> None:
    assert await accepted(viewer, [*EVERYBODY_REFUSED, *VIEWER_REFUSED]) == []


async def test_a_producer_may_write_just_these_columns(connection: Connection, producer: Connection) -> None:
    insert_one = "EXPLAIN INSERT INTO outbox.job ({}) OVERRIDING SYSTEM VALUE VALUES (NULL)"
    assert await allowed(connection, producer, insert_one) == WRITABLE


async def test_a_producer_may_read_ids_only(connection: Connection, producer: Connection) -> None:
    job = await insert(producer)
    assert await column(producer, "SELECT id FROM outbox.job") == [job]
    assert await allowed(connection, producer, "SELECT {} FROM outbox.job") == {"id"}


async def test_a_reader_reads_every_table(connection: Connection, viewer: Connection) -> None:
    query = "SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'outbox'::regnamespace AND relkind = 'r'"
    tables = await column(connection, query)
    assert await accepted(viewer, [f"TABLE {table}" for table in tables]) == [f"TABLE {table}" for table in tables]


async def test_a_reader_sees_the_status_and_the_replicas_of_another_login(database: str) -> None:
    async with (
        Database(make_conninfo(database, user="schema_relay"), name="relay pod-1-01234567") as replica,
        Database(make_conninfo(database, user="schema_reader"), name="relay admin") as viewer,
    ):
        await replica.wait(20)
        status = await Admin(viewer).status()
    assert status.destinations == []
    assert [each.name for each in status.replicas] == ["pod-1-01234567"]


async def test_nobody_else_may_do_anything(connection: Connection) -> None:
    query = (
        "SELECT p.proname FROM pg_proc p WHERE p.pronamespace = 'outbox'::regnamespace"
        " AND has_function_privilege('public', p.oid, 'EXECUTE')"
    )
    assert await column(connection, query) == []
    query = (
        "SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'outbox'::regnamespace AND relkind = 'r'"
        " AND (has_any_column_privilege('public', oid, 'SELECT, INSERT, UPDATE, REFERENCES')"
        "      OR has_table_privilege('public', oid, 'DELETE, TRUNCATE, TRIGGER'))"
    )
    assert await column(connection, query) == []
    assert not await value(connection, "SELECT has_schema_privilege('public', 'outbox', 'USAGE, CREATE')")


async def test_every_function_has_a_search_path_of_its_own(connection: Connection) -> None:
    query = (
        "SELECT DISTINCT setting FROM pg_proc, unnest(proconfig) AS setting"
        " WHERE pronamespace = 'outbox'::regnamespace AND setting LIKE 'search_path=%'"
    )
    assert await column(connection, query) == ["search_path=pg_catalog, pg_temp"]
    without = (
        "SELECT count(*) FROM pg_proc WHERE pronamespace = 'outbox'::regnamespace"
        " AND NOT coalesce('search_path=pg_catalog, pg_temp' = ANY (proconfig), false)"
    )
    assert await value(connection, without) == 0


async def test_a_producer_cannot_lend_the_routing_its_own_objects(connection: Connection, producer: Connection) -> None:
    # The routing runs with its owner's rights: what it calls must not be found in a place producers can write.
    await producer.execute("CREATE TEMP TABLE destination (name text, topics text[], retired_at timestamptz)")
    await producer.execute("INSERT INTO pg_temp.destination VALUES ('forged', '{*}')")
    await producer.execute("SET search_path = pg_temp, outbox")
    await insert(producer, destination=None)
    assert await column(connection, "SELECT status FROM outbox.job") == ["unrouted"]
