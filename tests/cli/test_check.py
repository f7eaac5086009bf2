"""`relay check` finds what would keep a replica from working, and says what to do about it."""

import socket
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from relay.demo.nest import Nest
from tests.cli.conftest import SECRETS, Connection, Ran, Relay, configure, rows
from tests.cli.pooler import PROGRAM, pgbouncer


def findings(ran: Ran) -> dict[str, tuple[str, str]]:
    """The level and sentence of each subject; the worst one where there are several."""
    worst: dict[str, tuple[str, str]] = {}
    for each in sorted(ran.lines, key=lambda each: ("ok", "warning", "fault").index(each["level"])):
        assert each.keys() == {"subject", "level", "sentence"}
        worst[each["subject"]] = (each["level"], each["sentence"])
    return worst


def levels(ran: Ran) -> dict[str, str]:
    return {subject: level for subject, (level, _) in findings(ran).items()}


async def test_all_is_well_after_a_first_deployment(relay: Relay) -> None:
    await relay("sync")
    ran = await relay("check", "--json")
    assert (ran.code, ran.err) == (0, "")
    assert levels(ran) == dict.fromkeys(
        ["configuration", "database", "schema", "privileges", "registry", "listen"], "ok"
    )
    assert "longest deadline 15 s < drain 25 s < grace 40 s, lease 60 s" in findings(ran)["configuration"][1]
    text = await relay("check")
    assert [line.split()[:2] for line in text.out.splitlines()] == [["ok", f"{subject}:"] for subject in levels(ran)]


async def test_a_lease_that_does_not_outlast_a_delivery_is_a_fault(relay: Relay, configured: Path) -> None:
    configure(configured, more="    deadline_s: 56\nreplica: {lease_s: 60, drain_s: 90, termination_grace_s: 100}\n")
    ran = await relay("check", "--json")
    assert ran.code == 1
    [finding] = ran.lines
    assert finding["level"] == "fault"
    assert "destinations.search.deadline_s: 56 s + 5 s must be less than replica.lease_s, 60 s" in finding["sentence"]


async def test_a_drain_that_does_not_fit_the_grace_period_is_a_fault(relay: Relay, configured: Path) -> None:
    configure(configured, more="replica: {drain_s: 45}\n")
    ran = await relay("check", "--json")
    assert ran.code == 1
    assert "45 s + 10 s must be at most replica.termination_grace_s, 40 s" in ran.lines[0]["sentence"]


async def test_a_secret_that_cannot_be_read_is_a_fault_and_the_rest_is_looked_at(relay: Relay) -> None:
    ran = await relay("check", "--json", SIGNING="")
    assert ran.code == 1
    found = findings(ran)
    assert found["configuration"][0] == "fault"
    assert "SIGNING" in found["configuration"][1]
    assert found["listen"][0] == "ok"


async def test_two_destinations_at_one_receiver_are_a_warning(relay: Relay, configured: Path) -> None:
    configure(configured, "    key_suffix: search\n", "")
    ran = await relay("check", "--json")
    assert ran.code == 0
    assert findings(ran)["configuration"][0] == "warning"


async def test_a_database_that_cannot_be_reached_is_a_fault(relay: Relay) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        ran = await relay("check", "--json", RELAY_DATABASE_DSN=f"postgresql://relay:hunter2@127.0.0.1:{port}/app")
    assert ran.code == 1
    level, sentence = findings(ran)["database"]
    assert level == "fault"
    assert str(port) in sentence
    assert "schema" not in findings(ran)


async def test_a_database_without_the_schema_is_a_fault(relay: Relay, new_database: str) -> None:
    ran = await relay("check", "--json", RELAY_DATABASE_DSN=new_database)
    assert ran.code == 1
    assert findings(ran)["schema"] == ("fault", "the database has no outbox schema; run `relay migrate`")
    assert "privileges" not in findings(ran)


async def test_a_schema_that_is_behind_is_a_fault(relay: Relay, connection: Connection) -> None:
    last = "DELETE FROM outbox.migration WHERE version = (SELECT max(version) FROM outbox.migration) RETURNING *"
    [row] = await rows(connection, last)
    try:
        ran = await relay("check", "--json")
    finally:
        await connection.execute("INSERT INTO outbox.migration VALUES (%s, %s, %s, %s, %s)", row)
    assert ran.code == 1
    assert findings(ran)["schema"] == ("fault", f"missing migrations: {row[1]}; run `relay migrate`")


@pytest.mark.parametrize(
    ("grants", "lacks"),
    [
        ("", "permission denied for schema outbox"),
        ("USAGE ON SCHEMA outbox", "permission denied for table migration"),
        ("USAGE ON SCHEMA outbox; SELECT ON outbox.migration", "SELECT, UPDATE and DELETE on outbox.job"),
        ("outbox_reader", "this user lacks SELECT, UPDATE and DELETE on outbox.job; SELECT, INSERT and UPDATE on"),
    ],
    ids=["nothing", "the schema", "the migrations", "reading"],
)
async def test_a_user_without_the_grants_is_a_fault(
    relay: Relay, connection: Connection, database: str, grants: str, lacks: str
) -> None:
    dsn = await _user(connection, database, grants)
    ran = await relay("check", "--json", RELAY_DATABASE_DSN=dsn)
    assert ran.code == 1
    level, sentence = findings(ran)["privileges"]
    assert level == "fault"
    assert lacks in sentence
    assert sentence.endswith(": grant the role outbox_relay to this user")
    assert "registry" not in findings(ran)


async def test_a_user_with_the_role_of_a_relay_is_enough(relay: Relay, connection: Connection, database: str) -> None:
    dsn = await _user(connection, database, "outbox_relay")
    await relay("sync", RELAY_DATABASE_DSN=dsn)
    ran = await relay("check", "--json", RELAY_DATABASE_DSN=dsn)
    assert set(levels(ran).values()) == {"ok"}


async def test_a_registry_that_differs_is_a_warning_with_both_sides(relay: Relay, configured: Path) -> None:
    await relay("sync")
    configure(configured, "[order.paid]", "[order.shipped]")
    configure(configured, "  search:", "  finder:")
    ran = await relay("check", "--json")
    assert ran.code == 0
    assert findings(ran)["registry"] == (
        "warning",
        (
            "configured, not registered: finder; run `relay sync`; "
            "registered, not configured: search; configure it here, or `relay sync --retire NAME`"
        ),
    )
    configure(configured, "[order.paid]", "[order.shipped]")
    level, sentence = findings(await relay("check", "--json"))["registry"]
    assert (level, sentence.split(";")[0]) == ("warning", "configured otherwise than registered: billing")


@pytest.mark.skipif(not PROGRAM.exists(), reason=f"{PROGRAM} is not installed (Debian: pgbouncer)")
@pytest.mark.parametrize("key", ["RELAY_DATABASE_DSN", "RELAY_DATABASE_LISTEN_DSN"])
async def test_a_listen_through_a_pooler_is_a_warning_that_names_the_key(
    relay: Relay, nest: Nest, database: str, key: str
) -> None:
    with pgbouncer(nest, database) as pooled:
        ran = await relay("check", "--json", **{key: pooled})
    assert ran.code == 0
    level, sentence = findings(ran)["listen"]
    assert level == "warning"
    assert f"does not arrive over {key.removeprefix('RELAY_').lower().replace('_', '.', 1)}, a pooler" in sentence
    assert findings(ran)["privileges"][0] == "ok"


@pytest.mark.skipif(not PROGRAM.exists(), reason=f"{PROGRAM} is not installed (Debian: pgbouncer)")
async def test_listening_past_the_pooler_or_not_at_all_is_well(relay: Relay, nest: Nest, database: str) -> None:
    with pgbouncer(nest, database) as pooled:
        past = await relay("check", "--json", RELAY_DATABASE_DSN=pooled, RELAY_DATABASE_LISTEN_DSN=database)
        off = await relay("check", "--json", RELAY_DATABASE_DSN=pooled, RELAY_REPLICA_NOTIFY="false")
    assert levels(past)["listen"] == levels(off)["listen"] == "ok"


async def test_a_listen_dsn_that_cannot_be_reached_is_a_fault(relay: Relay) -> None:
    ran = await relay("check", "--json", RELAY_DATABASE_LISTEN_DSN="postgresql://relay:hunter2@127.0.0.1:1/app")
    assert ran.code == 1
    level, sentence = findings(ran)["listen"]
    assert (level, sentence.startswith("database.listen_dsn cannot be reached: ")) == ("fault", True)


async def test_a_connection_string_that_cannot_be_read_is_a_fault(relay: Relay) -> None:
    ran = await relay("check", "--json", RELAY_DATABASE_LISTEN_DSN="postgres//relay:hunter2@127.0.0.1/app")
    assert ran.code == 1
    [finding] = ran.lines
    assert finding["sentence"].startswith("database.listen_dsn: not a connection string")


async def test_a_configuration_that_cannot_be_read_is_a_fault(anywhere: Relay, tmp_path: Path) -> None:
    ran = await anywhere("--config", str(tmp_path / "none.yaml"), "check", "--json", **SECRETS)
    assert ran.code == 1
    assert levels(ran) == {"configuration": "fault"}


async def _user(connection: Connection, database: str, grants: str) -> str:
    """The DSN of a new user with these privileges or roles and no others."""
    name: Any = sql.Identifier("newcomer")
    if await (await connection.execute("SELECT 1 FROM pg_roles WHERE rolname = 'newcomer'")).fetchone():
        await connection.execute(sql.SQL("DROP OWNED BY {}").format(name))
        await connection.execute(sql.SQL("DROP ROLE {}").format(name))
    await connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(name))
    for grant in filter(None, grants.split("; ")):
        await connection.execute(sql.SQL("GRANT {} TO {}").format(sql.SQL(grant), name))
    return psycopg.conninfo.make_conninfo(database, user="newcomer")
