"""What goes wrong on an operator's side is a sentence with a stable exit code; the fixture refuses tracebacks."""

import os
import pty
import socket
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from relay.database import UNAVAILABLE
from relay.errors import DatabaseUnavailableError
from relay.verb import _explained
from tests.cli.conftest import SECRETS, Connection, Relay, configure

NEEDS_DATABASE = [
    ("status",), ("sync",), ("pause", "billing"), ("resume", "billing"), ("job", "show", "1"), ("job", "cancel", "1"),
    ("migrate",), ("migrate", "--check"), ("run",),
]  # fmt: skip
verbs = pytest.mark.parametrize("verb", NEEDS_DATABASE, ids=" ".join)
a_few_verbs = pytest.mark.parametrize("verb", NEEDS_DATABASE[:1] + NEEDS_DATABASE[-2:], ids=" ".join)


@a_few_verbs
async def test_a_missing_configuration_is_2(anywhere: Relay, tmp_path: Path, verb: tuple[str, ...]) -> None:
    ran = await anywhere("--config", str(tmp_path / "none.yaml"), *verb)
    assert (ran.code, ran.out) == (2, "")
    assert "none.yaml" in ran.err


async def test_no_configuration_at_all_is_2_and_says_what_to_set(anywhere: Relay) -> None:
    ran = await anywhere("status")
    assert ran.code == 2
    assert "RELAY_DATABASE_DSN" in ran.err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("destinations: [", "not YAML"),
        ("destinations: {billing: {url: ftp://x}}", "destinations.billing.url"),
        ("replica: {leas_s: 5}", "did you mean lease_s?"),
    ],
    ids=["not YAML", "a bad value", "an unknown key"],
)
async def test_a_bad_configuration_is_2_with_its_place(relay: Relay, configured: Path, text: str, says: str) -> None:
    configure(configured, configured.read_text(), text)  # noqa: ASYNC240 - a file of ten lines
    ran = await relay("status")
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err
    assert all(line.startswith("relay: ") for line in ran.err.splitlines())


@pytest.mark.parametrize(
    "dsn",
    [
        "postgres//relay:hunter2@127.0.0.1/app",
        "postgresql://relay:hunter2%zz@127.0.0.1/app",
        "postgresql://relay:hunter2/x@127.0.0.1:1/app",
        "postgresql://relay:x@hunter2@127.0.0.1:1/app",
        "host=127.0.0.1 password='hunter2",
        "hunter2",
    ],
    ids=["no scheme", "bad percent", "a slash", "an at sign", "an open quote", "no form at all"],
)
async def test_a_connection_string_that_cannot_be_read_is_2_and_never_shown(relay: Relay, dsn: str) -> None:
    ran = await relay("run", RELAY_DATABASE_DSN=dsn)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("relay: database.dsn: not a connection string")


@verbs
async def test_a_database_that_is_not_there_is_3_with_its_address(relay: Relay, verb: tuple[str, ...]) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        ran = await relay(*verb, RELAY_DATABASE_DSN=f"postgresql://relay:hunter2@127.0.0.1:{port}/app")
    assert (ran.code, ran.out) == (3, "")
    assert str(port) in ran.err


async def test_a_host_that_does_not_exist_is_3_with_its_name(relay: Relay) -> None:
    ran = await relay("status", RELAY_DATABASE_DSN="postgresql://relay:hunter2@nowhere.invalid/app")
    assert (ran.code, ran.out) == (3, "")
    assert "nowhere.invalid" in ran.err


@a_few_verbs
async def test_a_wrong_password_is_3(
    relay: Relay, connection: Connection, database: str, verb: tuple[str, ...]
) -> None:
    await _ask_for_passwords(connection)
    try:
        dsn = psycopg.conninfo.make_conninfo(database, user="guarded", password="hunter2")
        ran = await relay(*verb, RELAY_DATABASE_DSN=dsn)
    finally:
        await _trust_again(connection)
    assert (ran.code, ran.out) == (3, "")
    assert 'password authentication failed for user "guarded"' in ran.err


async def test_a_user_who_may_not_is_3_and_is_sent_to_check(
    relay: Relay, connection: Connection, database: str
) -> None:
    await connection.execute("DROP ROLE IF EXISTS viewer")
    await connection.execute("CREATE ROLE viewer LOGIN IN ROLE outbox_reader")
    ran = await relay("pause", "billing", RELAY_DATABASE_DSN=psycopg.conninfo.make_conninfo(database, user="viewer"))
    assert (ran.code, ran.out) == (3, "")
    assert "permission denied for table destination" in ran.err
    assert "`relay check` names the grants" in ran.err


@pytest.mark.parametrize("verb", [v for v in NEEDS_DATABASE if v != ("migrate",)], ids=" ".join)
async def test_a_database_without_the_schema_is_4(relay: Relay, new_database: str, verb: tuple[str, ...]) -> None:
    ran = await relay(*verb, RELAY_DATABASE_DSN=new_database)
    said = "the database has no outbox schema; run `relay migrate`"
    if verb == ("migrate", "--check"):
        assert (ran.code, ran.out, ran.err) == (1, f"{said}\n", "")
    else:
        assert (ran.code, ran.out, ran.err) == (4, "", f"relay: {said}\n")


async def test_migrate_brings_the_schema_once_and_check_agrees(relay: Relay, new_database: str) -> None:
    first = await relay("migrate", RELAY_DATABASE_DSN=new_database)
    assert first.code == 0
    assert first.out.startswith("applied 0001_job, ")
    assert (await relay("migrate", RELAY_DATABASE_DSN=new_database)).out == "nothing to do\n"
    again = await relay("migrate", "--check", RELAY_DATABASE_DSN=new_database)
    assert (again.code, again.out.startswith("the schema is at ")) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("jbo",), "No such command 'jbo'"),
        (("job", "cancel", "x"), "'x' is not a valid integer"),
        (("job", "cancel", "0"), "0 is not in the range"),
        (("job", "cancel", str(2**63)), "is not in the range"),
        (("ping",), "Missing argument 'DESTINATION'"),
        (("status", "--jsn"), "No such option"),
        (("dead", "list", "--topic", "\udcff"), r"\udcff is not UTF-8 text"),
    ],
    ids=ascii,
)
async def test_wrong_usage_is_2(relay: Relay, arguments: tuple[str, ...], says: str) -> None:
    ran = await relay(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err


def on_a_terminal(*arguments: str, **variables: str) -> str:
    """What `relay` writes when its standard output is a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "relay", *arguments],
        stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.DEVNULL,
        env={"PATH": os.environ["PATH"], "TERM": "xterm-256color", **variables},
    ):  # fmt: skip
        os.close(theirs)
        said = b""
        while piece := _read(ours):
            said += piece
    os.close(ours)
    return said.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux says so when the last writer is gone
        return b""


async def test_colour_is_for_terminals_that_want_it(relay: Relay, configured: Path) -> None:
    variables = {"RELAY_CONFIG": str(configured), **SECRETS}
    assert "\x1b[31mfault" in on_a_terminal("check", **variables)
    assert "\x1b[" not in on_a_terminal("check", NO_COLOR="1", **variables)
    assert "\x1b[" not in (await relay("check")).out


async def _ask_for_passwords(connection: Connection) -> None:
    """Add a line to pg_hba.conf for a user that no other test has."""
    await connection.execute("DROP ROLE IF EXISTS guarded")
    await connection.execute("CREATE ROLE guarded LOGIN PASSWORD 'another'")
    file = await _hba(connection)
    file.write_text("host all guarded all scram-sha-256\n" + file.read_text())
    await connection.execute("SELECT pg_reload_conf()")


async def _trust_again(connection: Connection) -> None:
    file = await _hba(connection)
    file.write_text(file.read_text().replace("host all guarded all scram-sha-256\n", ""))
    await connection.execute("SELECT pg_reload_conf()")


async def _hba(connection: Connection) -> Path:
    row = await (await connection.execute("SHOW hba_file")).fetchone()
    assert row is not None
    return Path(row[0])


@pytest.mark.parametrize("kind", UNAVAILABLE, ids=lambda kind: kind.__name__)
def test_in_whatever_way_the_database_is_away_it_is_a_sentence(kind: type[Exception]) -> None:
    """Among them a server that falls silent, and a standby, which refuses BEGIN READ WRITE."""
    explained = _explained(kind("not\nnow"))
    assert isinstance(explained, DatabaseUnavailableError)
    assert str(explained) == "the database cannot be used: not now"
