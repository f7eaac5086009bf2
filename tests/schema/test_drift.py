"""`relay check --schema`: whatever somebody changed in schema outbox is found, by its name."""

from collections.abc import AsyncIterator

import pytest
from psycopg import AsyncConnection

from relay.database import SQL, Database
from relay.demo.postgres import Postgres
from relay.drift import differences, drift
from tests.schema.rows import Connection, connected
from tests.schema.snapshot import CATALOG, snapshot
from tests.schema.test_packaging import relay

CHANGES = [
    ("DROP INDEX outbox.job_dead", "index job_dead is missing: CREATE INDEX job_dead ON outbox.job"),
    ("CREATE INDEX mine ON outbox.job (topic)", "index mine is not the relay's: CREATE INDEX mine ON outbox.job"),
    ("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'outbox.job_dead'::regclass", "half built"),
    (
        "ALTER TABLE outbox.job DROP CONSTRAINT job_priority_is_0_to_3",
        "constraint job.job_priority_is_0_to_3 is missing: CHECK",
    ),
    (
        "ALTER TABLE outbox.attempt DROP CONSTRAINT attempt_pkey, ADD CONSTRAINT attempt_pkey PRIMARY KEY (job_id)",
        "constraint attempt.attempt_pkey is `PRIMARY KEY (job_id)`, not `PRIMARY KEY (job_id, claim)`",
    ),
    ("ALTER TABLE outbox.job ALTER max_attempts TYPE bigint", "column job.max_attempts is `bigint`, not `integer`"),
    ("ALTER TABLE outbox.job ALTER topic DROP NOT NULL", "column job.topic is `text`, not `text NOT NULL`"),
    ("ALTER TABLE outbox.job ALTER priority SET DEFAULT 2", "column job.priority is `smallint NOT NULL DEFAULT 2`"),
    ("ALTER TABLE outbox.job ADD note text", "column job.note is not the relay's: text"),
    ("DROP TRIGGER job_wake ON outbox.job", "trigger job.job_wake is missing: CREATE TRIGGER job_wake"),
    ("ALTER TABLE outbox.job DISABLE TRIGGER job_route", "not enabled for every session"),
    (
        "CREATE OR REPLACE FUNCTION outbox.wake() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
        "function outbox.wake() has another definition than this version's",
    ),
    ("DROP FUNCTION outbox.enqueue_ordered", "function outbox.enqueue_ordered(text,"),
    ("CREATE VIEW outbox.mine AS SELECT 1", "view mine is not the relay's"),
    ("CREATE TABLE outbox.mine ()", "table mine is not the relay's"),
    ("ALTER TABLE outbox.attempt SET UNLOGGED", "table attempt is `unlogged`, not `permanent`"),
    ("ALTER SEQUENCE outbox.job_id_seq CACHE 100", "cache 100"),
    ("GRANT UPDATE (status) ON outbox.job TO outbox_producer", "grant to outbox_producer on job.status is not"),
    ("REVOKE UPDATE ON outbox.job FROM outbox_relay", "grant to outbox_relay on job is `DELETE, SELECT`, not"),
    ("GRANT EXECUTE ON FUNCTION outbox.route() TO PUBLIC", "grant to PUBLIC on outbox.route() is not"),
    ("REVOKE USAGE ON SCHEMA outbox FROM outbox_reader", "grant to outbox_reader on outbox is missing: USAGE"),
]  # fmt: skip

HARMLESS = [
    "ALTER TABLE outbox.job SET (fillfactor = 70)",
    "GRANT SELECT ON outbox.job TO pg_monitor",
    "COMMENT ON TABLE outbox.job IS 'ours'",
    "ALTER TABLE outbox.job OWNER TO pg_monitor",
    "SET LOCAL search_path = outbox, public",
]


@pytest.fixture(scope="module")
async def one(postgres: Postgres, template: str) -> AsyncIterator[Connection]:
    """A connection to a migrated database, whose tests roll back what they change."""
    async with await AsyncConnection.connect(postgres.create_database("drift", template=template)) as connection:
        yield connection


async def sentences(connection: Connection, change: str) -> list[str]:
    """What is found after a change, which is then undone."""
    await connection.execute(change.encode())
    await connection.execute(SQL["search_path"])
    cursor = await connection.execute(SQL["catalog"])
    found = differences(await cursor.fetchall())
    await connection.rollback()
    return [each.sentence for each in found]


async def test_the_snapshot_is_what_the_migrations_build(migrated: str) -> None:
    assert await snapshot(migrated) == CATALOG.read_text(), "the migrations changed: run `make catalog`"


@pytest.mark.parametrize(("change", "expected"), CHANGES, ids=[change[:50] for change, _ in CHANGES])
async def test_a_change_is_found_by_name(one: Connection, change: str, expected: str) -> None:
    found = await sentences(one, change)
    assert any(expected in each for each in found), found
    # A function that is gone takes its grant along, a key its index; nothing else is named.
    assert len(found) <= 2


@pytest.mark.parametrize("change", HARMLESS)
async def test_what_is_the_operators_is_left_alone(one: Connection, change: str) -> None:
    assert await sentences(one, change) == []


async def test_a_relay_may_look(copy: str) -> None:
    async with Database(copy.replace("postgres@", "schema_relay@"), name="drift") as connections:
        assert await drift(connections) == []


async def apply(dsn: str, change: str) -> None:
    """Change a database for good."""
    async with connected(dsn) as connection:
        await connection.execute(change.encode())


async def test_the_command_fails_on_what_is_missing_and_only_warns_of_what_was_added(copy: str) -> None:
    clean = relay(copy, "check", "--schema")
    assert "everything in schema outbox is as the migrations build it" in clean.stdout
    await apply(copy, "CREATE INDEX mine ON outbox.job (topic)")
    added = relay(copy, "check", "--schema")
    await apply(copy, "DROP INDEX outbox.job_due")
    gone = relay(copy, "check", "--schema")
    plain = relay(copy, "check")
    assert [done.returncode for done in (clean, added, gone, plain)] == [0, 0, 1, 0]
    assert "index mine is not the relay's" in added.stdout
    assert "index job_due is missing" in gone.stdout
    assert "Traceback" not in gone.stdout + gone.stderr
