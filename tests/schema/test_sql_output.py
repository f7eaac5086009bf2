"""`relay migrate --sql`: other tools apply it, and then there is nothing left to migrate."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import Connection, create_engine, text

from relay.demo.postgres import find_binaries
from relay.migrate import compare, migrate
from relay.migration import migrations
from tests.docs.pages import snippet
from tests.schema.catalog import catalog
from tests.schema.rows import connected, value
from tests.schema.steps import NAMES


def script(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What the command prints where there is no configuration and no database."""
    command = [sys.executable, "-m", "relay", "migrate", "--sql", *arguments]
    return subprocess.run(command, env={"PATH": ""}, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def everything() -> str:
    """The whole script."""
    return script().stdout


def psql(dsn: str, sql: str) -> subprocess.CompletedProcess[str]:
    """Apply a script in one transaction."""
    command = [str(find_binaries() / "psql"), "-X", "-q", "-1", "-v", "ON_ERROR_STOP=1", "-d", dsn]
    return subprocess.run(command, input=sql, capture_output=True, text=True, check=False)


async def assert_as_migrated(dsn: str, copy: str) -> None:
    """Nothing is left to do, and what there is equals a migrated database."""
    assert (await compare(dsn)).verdict == "same"
    assert await migrate(dsn) == []
    async with connected(dsn) as scripted, connected(copy) as fresh:
        assert await catalog(scripted) == await catalog(fresh)


async def test_psql_applies_it(new_database: str, copy: str, everything: str) -> None:
    done = psql(new_database, everything)
    assert (done.returncode, done.stderr) == (0, "")
    await assert_as_migrated(new_database, copy)


async def test_sqlalchemy_applies_it_as_alembic_calls_it(
    new_database: str, copy: str, everything: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = conninfo_to_dict(new_database)
    engine = create_engine(f"postgresql+psycopg://postgres@{parts['host']}:{parts['port']}/{parts['dbname']}")
    (tmp_path / "outbox.sql").write_text(everything)
    with engine.begin() as connection:
        monkeypatch.setitem(sys.modules, "alembic", _alembic(connection))
        revision = {"__file__": str(tmp_path / "revision.py")}
        exec(snippet("docs/schema.md", "alembic"), revision)  # noqa: S102
        revision["upgrade"]()  # type: ignore[operator]
    engine.dispose()
    await assert_as_migrated(new_database, copy)


def _alembic(connection: Connection) -> ModuleType:
    # Alembic is not installed here; this is what its op.execute does with a text.
    module = ModuleType("alembic")
    module.op = type("op", (), {"execute": lambda sql: connection.execute(text(sql))})  # type: ignore[attr-defined]
    return module


async def test_a_second_run_is_refused_and_changes_nothing(new_database: str, copy: str, everything: str) -> None:
    assert psql(new_database, everything).returncode == 0
    again = psql(new_database, everything)
    assert again.returncode != 0
    assert "migration_pkey" in again.stderr
    await assert_as_migrated(new_database, copy)


async def test_it_goes_on_after_what_a_database_has(new_database: str, copy: str) -> None:
    await migrate(new_database, migrations()[:3])
    assert psql(new_database, script("--after", "3").stdout).returncode == 0
    await assert_as_migrated(new_database, copy)


async def test_a_script_that_fails_leaves_nothing_behind(new_database: str, everything: str) -> None:
    assert psql(new_database, everything + "SELECT 1 / 0;").returncode != 0
    async with connected(new_database) as connection:
        assert await value(connection, "SELECT to_regnamespace('outbox') IS NULL")


async def test_the_owner_of_a_database_may_run_it(new_database: str, everything: str) -> None:
    with psycopg.connect(new_database, autocommit=True) as connection:
        connection.execute("CREATE ROLE scripted LOGIN")
        connection.execute(f"ALTER DATABASE {conninfo_to_dict(new_database)['dbname']} OWNER TO scripted".encode())
    done = psql(new_database.replace("postgres@", "scripted@"), everything)
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_new_is_a_sentence() -> None:
    done = script("--after", str(len(NAMES)))
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr == f"relay: no migration after {len(NAMES)}: this version's last is {NAMES[-1]}\n"


def test_no_tool_takes_a_piece_of_it_for_a_placeholder(everything: str) -> None:
    assert "${" not in everything
    assert not text(everything).compile().params
