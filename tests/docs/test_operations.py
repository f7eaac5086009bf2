"""The operators' page: its events and columns are the code's, its statements run, its roles may do what it says."""

import ast
import os
import re
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner
from psycopg.conninfo import conninfo_to_dict

from relay.cli import main
from relay.config import load
from relay.database import SQL
from tests.conftest import Connection
from tests.docs.pages import ROOT, blocks, inline_code, snippet, table, text

PAGE = "docs/operations.md"


def _events() -> set[tuple[str, str]]:
    found = set()
    for file in (ROOT / "relay").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Call(
                    func=ast.Name(id="event"), args=[ast.Attribute(attr=level), ast.Constant(value=str(name)), *_]
                ):
                    found.add((name, level.lower()))
    return found


def test_the_page_has_every_event_of_the_code_with_its_level_and_no_other() -> None:
    rows = [(row[0].strip("`"), row[1]) for row in table(PAGE, "event")]
    assert len(rows) == len(set(rows))
    assert set(rows) == _events()


def test_every_event_is_named_by_a_literal_so_that_it_can_be_searched_for() -> None:
    calls = sum(len(re.findall(r"(?<!def )\bevent\(", file.read_text())) for file in (ROOT / "relay").rglob("*.py"))
    literal = sum(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "event"
        and isinstance(node.args[1], ast.Constant)
        for file in (ROOT / "relay").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
    )
    assert calls == literal


def test_the_page_has_every_column_of_status_in_order(
    migrated: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("RELAY_")]:
        monkeypatch.delenv(name)
    done = CliRunner().invoke(main, ["status"], env={"RELAY_DATABASE_DSN": migrated})
    assert done.exit_code == 0, done.output
    columns = [code for row in table(PAGE, "column") for code in inline_code(row[0])]
    assert done.output.splitlines()[0].split() == columns


@pytest.mark.parametrize("name", ["failures", "vacuum"])
async def test_each_query_runs_as_a_reader(connection: Connection, name: str) -> None:
    async with connection.transaction(force_rollback=True):
        await connection.execute("SET LOCAL ROLE outbox_reader")
        await connection.execute(snippet(PAGE, f"sql {name}").encode())


async def test_the_query_for_failures_counts_them_by_their_reason(connection: Connection) -> None:
    await connection.execute("INSERT INTO outbox.job (topic, destination, payload) VALUES ('t', 'billing', '{}')")
    for claim in (1, 2):
        await connection.execute(
            "INSERT INTO outbox.attempt (job_id, claim, attempt, replica, error_class, detail, status, duration_s)"
            " VALUES (1, %s, 1, 'r', 'status', '500 Internal Server Error', 500, 0.1)",
            (claim,),
        )
    cursor = await connection.execute(snippet(PAGE, "sql failures").encode())
    [row] = await cursor.fetchall()
    assert row[:5] == ("billing", "status", 500, "500 Internal Server Error", 2)


async def test_the_query_for_vacuum_finds_an_open_transaction(connection: Connection, database: str) -> None:
    async with await psycopg.AsyncConnection.connect(database) as other:
        await other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await other.execute("SELECT 1 FROM outbox.job")
        cursor = await connection.execute(snippet(PAGE, "sql vacuum").encode())
        assert f"session {other.info.backend_pid}" in [row[0] for row in await cursor.fetchall()]


@pytest.mark.parametrize("jobs", [0, 3])
async def test_after_the_statement_for_a_failover_no_id_is_drawn_again(connection: Connection, jobs: int) -> None:
    insert = "INSERT INTO outbox.job (topic, destination, payload) VALUES ('t', 'billing', '{}') RETURNING id"
    for _ in range(jobs):
        await connection.execute(insert)
    await connection.execute(snippet(PAGE, "sql sequence").encode())
    cursor = await connection.execute(insert)
    assert await cursor.fetchone() == (1_000_001 + jobs,)


async def test_the_grants_of_the_page_are_enough_and_a_producer_can_only_insert(connection: Connection) -> None:
    insert = b"INSERT INTO outbox.job (topic, payload) VALUES ('t', '{}') RETURNING id"
    async with connection.transaction(force_rollback=True):
        for role in ("shop", "relay", "support"):
            await connection.execute(f"CREATE ROLE {role} LOGIN".encode())
        await connection.execute(snippet(PAGE, "sql grants").encode())

        await connection.execute("SET LOCAL ROLE shop")
        await connection.execute(insert)
        for refused in (
            b"UPDATE outbox.job SET priority = 0",
            b"DELETE FROM outbox.job",
            b"SELECT payload FROM outbox.job",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                async with connection.transaction():
                    await connection.execute(refused)

        await connection.execute("SET LOCAL ROLE relay")
        cursor = await connection.execute(SQL["privileges"])
        assert await cursor.fetchall() == []

        await connection.execute("SET LOCAL ROLE support")
        await connection.execute(SQL["status"], {"cap": 10})
        await connection.execute(SQL["unrouted"], {"cap": 10})
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            async with connection.transaction():
                await connection.execute(insert)


def test_the_roles_of_the_page_are_those_of_the_migration() -> None:
    wanted = re.search(r"ARRAY\[(.*?)\]", text("schema/0005_roles.sql"))
    assert wanted is not None
    created = re.findall(r"CREATE ROLE (\w+) NOLOGIN;", snippet(PAGE, "sql roles"))
    assert created == re.findall(r"'(\w+)'", wanted[1])


def test_the_connection_string_for_tls_is_one_that_libpq_reads(tmp_path: Path) -> None:
    secure, _ = blocks(PAGE, "yaml")
    (tmp_path / "relay.yaml").write_text(secure)
    parts = conninfo_to_dict(load(tmp_path / "relay.yaml", {}).database.dsn.text())
    assert (parts["sslmode"], parts["host"], parts["sslkey"]) == ("verify-full", "db.example", "/etc/relay/client.key")


def test_the_configuration_for_a_pooler_loads(tmp_path: Path) -> None:
    _, pooler = blocks(PAGE, "yaml")
    (tmp_path / "relay.yaml").write_text(pooler)
    database = load(tmp_path / "relay.yaml", {}).database
    assert (database.prepared_statements, database.listen_dsn is None) == (False, False)
