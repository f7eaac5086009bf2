"""Bringing a database to this version's schema."""

import asyncio
from collections.abc import Awaitable, Callable

import psycopg
import pytest

import relay.migrate
from relay.demo.postgres import Postgres
from relay.errors import DatabaseUnavailableError, SchemaError
from relay.migrate import compare, migrate
from relay.migration import migrations
from tests.schema.catalog import catalog
from tests.schema.rows import connected, insert, rows, value
from tests.schema.steps import NAMES, following


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    """Look again until it is so: another session's state gives no signal."""
    async with asyncio.timeout(20):
        while not await true():
            await asyncio.sleep(0.01)


async def test_twenty_at_once_apply_each_migration_once(new_database: str) -> None:
    applied = await asyncio.gather(*(migrate(new_database) for _ in range(20)))
    assert sorted(applied, key=len) == [[]] * 19 + [NAMES]
    async with connected(new_database) as connection:
        assert await rows(connection, "SELECT name FROM outbox.migration ORDER BY version") == [(n,) for n in NAMES]


async def test_a_second_run_has_nothing_to_do(copy: str) -> None:
    assert await migrate(copy) == []


async def test_one_step_at_a_time_ends_where_a_fresh_install_does(new_database: str, copy: str) -> None:
    for version in range(1, len(NAMES) + 1):
        assert await migrate(new_database, migrations()[:version]) == [NAMES[version - 1]]
    async with connected(new_database) as stepwise, connected(copy) as fresh:
        assert await catalog(stepwise) == await catalog(fresh)


async def test_the_owner_of_a_database_needs_no_superuser(new_database: str, copy: str) -> None:
    name = new_database.rpartition("/")[2]
    async with connected(new_database) as connection:
        await connection.execute(f"CREATE ROLE own_{name} LOGIN".encode())
        await connection.execute(f"ALTER DATABASE {name} OWNER TO own_{name}".encode())
    assert await migrate(new_database.replace("postgres@", f"own_{name}@")) == NAMES
    async with connected(new_database) as owned, connected(copy) as fresh:
        assert (await catalog(owned))["constraint"] == (await catalog(fresh))["constraint"]


async def test_settings_of_the_role_change_nothing(new_database: str) -> None:
    name = new_database.rpartition("/")[2]
    async with connected(new_database) as connection:
        for setting in (
            "search_path = public",
            "statement_timeout = '200ms'",
            "default_transaction_isolation = 'serializable'",
            "client_min_messages = 'error'",
        ):
            await connection.execute(f"ALTER DATABASE {name} SET {setting}".encode())
    wanted = following("SELECT pg_sleep(0.3);")
    assert await migrate(new_database, wanted) == [migration.name for migration in wanted]


async def test_a_guard_that_idles_longer_than_the_role_allows_is_kept(new_database: str) -> None:
    name = new_database.rpartition("/")[2]
    async with connected(new_database) as connection:
        await connection.execute(f"ALTER DATABASE {name} SET idle_in_transaction_session_timeout = '50ms'".encode())
    wanted = following("SELECT pg_sleep(0.3);")
    assert await migrate(new_database, wanted) == [migration.name for migration in wanted]


CONCURRENT = """\
-- a half-built index is of no use
DROP INDEX CONCURRENTLY IF EXISTS outbox.job_topic;
CREATE INDEX CONCURRENTLY job_topic ON outbox.job (topic);
"""


async def test_an_index_is_built_concurrently_while_others_wait_their_turn(
    copy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay.migrate, "_LOCK_TRIES", 1)
    wanted = following(CONCURRENT, transactional=False)
    applied = await asyncio.gather(*(migrate(copy, wanted) for _ in range(5)))
    assert sorted(applied, key=len) == [[]] * 4 + [[wanted[-1].name]]
    async with connected(copy) as connection:
        query = "SELECT indisvalid FROM pg_index WHERE indexrelid = 'outbox.job_topic'::regclass"
        assert await value(connection, query) is True


async def test_an_index_that_was_left_half_built_is_built_again(copy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay.migrate, "_LOCK_TIMEOUT_S", 0.2)
    monkeypatch.setattr(relay.migrate, "_LOCK_TRIES", 3)
    invalid = "SELECT count(*) = 1 FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
    invalid += " WHERE c.relname = 'job_topic' AND NOT i.indisvalid"
    async with connected(copy) as reader, connected(copy) as observer:
        await reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM outbox.job")
        building = asyncio.create_task(migrate(copy, following(CONCURRENT, transactional=False)))
        await until(lambda: value(observer, invalid))
        await reader.execute("ROLLBACK")
        assert len(await building) == 1
        assert await value(observer, invalid) is False
        assert await value(observer, "SELECT to_regclass('outbox.job_topic') IS NOT NULL")


ALTER = "CREATE TABLE outbox.extra (); ALTER TABLE outbox.job ADD COLUMN note text;"


async def test_a_migration_that_cannot_get_its_lock_lets_producers_through_and_gives_up(
    copy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay.migrate, "_LOCK_TIMEOUT_S", 0.5)
    monkeypatch.setattr(relay.migrate, "_LOCK_TRIES", 2)
    waits = "SELECT count(*) = 1 FROM pg_locks WHERE relation = 'outbox.job'::regclass AND NOT granted"
    async with connected(copy) as report, connected(copy) as producer, connected(copy) as observer:
        await report.execute("BEGIN; SELECT count(*) FROM outbox.job")
        applying = asyncio.create_task(migrate(copy, following(ALTER)))
        await until(lambda: value(observer, waits))
        # Stands behind the migration, which stands behind the report, which never ends.
        await insert(producer)
        with pytest.raises(SchemaError, match=r"next: a table stayed locked for 2 tries of 0\.5 s"):
            await applying
        await report.execute("COMMIT")
        assert await value(observer, "SELECT to_regclass('outbox.extra') IS NULL")
    assert len(await migrate(copy, following(ALTER))) == 1


async def test_a_migration_that_waited_goes_on_when_the_lock_is_free(
    copy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay.migrate, "_LOCK_TIMEOUT_S", 0.1)
    waits = "SELECT count(*) = 1 FROM pg_locks WHERE relation = 'outbox.job'::regclass AND NOT granted"
    async with connected(copy) as report, connected(copy) as observer:
        await report.execute("BEGIN; SELECT count(*) FROM outbox.job")
        applying = asyncio.create_task(migrate(copy, following(ALTER)))
        await until(lambda: value(observer, waits))
        await report.execute("COMMIT")
        assert len(await applying) == 1


async def test_a_broken_migration_names_its_file_and_leaves_nothing_behind(new_database: str) -> None:
    with pytest.raises(SchemaError, match=f"{len(NAMES) + 1:04}_broken: division by zero"):
        await migrate(new_database, following("CREATE TABLE outbox.half (); SELECT 1 / 0;", name="broken"))
    async with connected(new_database) as connection:
        assert await value(connection, "SELECT to_regclass('outbox.half') IS NULL")
        assert await value(connection, "SELECT max(version) FROM outbox.migration") == len(NAMES)
    assert (await compare(new_database)).verdict == "same"


async def test_a_connection_lost_in_the_middle_is_no_fault_of_the_file(copy: str) -> None:
    lost = "CREATE TABLE outbox.half (); SELECT pg_terminate_backend(pg_backend_pid());"
    with pytest.raises(DatabaseUnavailableError, match="next"):
        await migrate(copy, following(lost))
    assert len(await migrate(copy, following("CREATE TABLE outbox.half ();"))) == 1


async def test_an_unreachable_database_is_said_without_its_password(unused_port: int) -> None:
    with pytest.raises(DatabaseUnavailableError) as refused:
        await migrate(f"postgresql://relay:hunter2@127.0.0.1:{unused_port}/app")
    assert f"port {unused_port}" in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://relay:hun%zzter2@127.0.0.1/app",
        "host=127.0.0.1 user=relay password=two hunter2",
        "host=127.0.0.1 user=relay password='hunter2",
        "hunter2",
    ],
)
async def test_a_malformed_connection_string_is_refused_without_a_piece_of_it(dsn: str) -> None:
    for verb in (migrate, compare):
        with pytest.raises(DatabaseUnavailableError) as refused:
            await verb(dsn)
        assert "ter2" not in str(refused.value)


async def test_a_database_that_checks_no_text_is_refused(postgres: Postgres) -> None:
    with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS ascii")
        connection.execute("CREATE DATABASE ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'")
    with pytest.raises(SchemaError, match="SQL_ASCII"):
        await migrate(postgres.dsn("ascii"))
