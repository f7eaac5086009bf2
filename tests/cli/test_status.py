"""`relay status` says the numbers of a table that was made by hand."""

import pytest

from tests.cli.conftest import DEAD, RUNNING, Connection, Put, Relay, words


@pytest.fixture
async def table(put: Put, connection: Connection) -> None:
    """Three destinations, registered, retired and not registered, in every state."""
    await connection.execute(
        "INSERT INTO outbox.destination (name, topics, paused_at, paused_why, retired_at) VALUES "
        "('billing', '{order.paid}', NULL, NULL, NULL), ('search', '{order.*}', now(), 'reindexing', NULL), "
        "('attic', '{}', NULL, NULL, now())"
    )
    # billing: 3 due (the oldest 90 s, one of them a retry), 2 later, 1 running, 3 blocked, 2 dead, 1 of them standing.
    await put(created_at="now() - interval '30 s'", run_at="now() - interval '30 s'")
    await put(created_at="now() - interval '90 s'", run_at="now() - interval '1 s'", attempts="2", claims="2")
    await put(priority="3")
    await put(run_at="now() + interval '1 h'", scheduled_at="now() + interval '1 h'")
    await put(entity_key="retries", run_at="now() + interval '1 min'", attempts="1", claims="1", priority="0")
    await put(entity_key="runs", **RUNNING)
    for entity in ("runs", "runs", "retries"):
        await put(entity_key=entity, status="'blocked'")
    await put(entity_key="stands", **DEAD, holds_lane="true")
    await put(**DEAD, holds_lane="false")
    # search: paused, 1 due, and 30 done within the last minute, 2 before it; 5 were discarded.
    await put("search", created_at="now() - interval '5 s'", run_at="now()")
    await connection.execute(
        "INSERT INTO outbox.job (destination, topic, payload, status, finished_at, holds_lane) "
        "SELECT 'search', 'order.paid', '{}', CASE WHEN n > 32 THEN 'discarded' ELSE 'done' END, "
        "now() - CASE WHEN n > 30 AND n <= 32 THEN interval '2 min' ELSE interval '10 s' END, false "
        "FROM generate_series(1, 37) AS n"
    )
    # nobody: never registered, 1 running.
    await put("nobody", **RUNNING)
    # 2 that nobody subscribed to.
    for _ in range(2):
        await put(None, topic="nobody.asked")


@pytest.mark.usefixtures("table")
async def test_as_json(relay: Relay, replica: str) -> None:
    status = (await relay("status", "--json")).json
    by_name = {each.pop("name"): each for each in status["destinations"]}
    assert list(by_name) == ["attic", "billing", "nobody", "search"]
    assert 90 <= by_name["billing"].pop("oldest_due_age_s") < 150
    assert 5 <= by_name["search"].pop("oldest_due_age_s") < 65
    assert by_name["billing"] == {
        "registered": True, "retired": False, "paused_why": None, "due": 3, "later": 2, "running": 1, "blocked": 3,
        "blocked_more": False, "dead": 2, "standing_lanes": 1, "done_per_s": 0.0,
    }  # fmt: skip
    assert by_name["search"] == {
        "registered": True, "retired": False, "paused_why": "reindexing", "due": 1, "later": 0, "running": 0,
        "blocked": 0, "blocked_more": False, "dead": 0, "standing_lanes": 0, "done_per_s": 0.5,
    }  # fmt: skip
    assert (by_name["attic"]["registered"], by_name["attic"]["retired"]) == (True, True)
    nobody = by_name["nobody"]
    assert (nobody["registered"], nobody["running"], nobody["oldest_due_age_s"]) == (False, 1, None)
    assert status["unrouted"] == 2
    [connected] = status["replicas"]
    assert connected["name"] == replica
    assert connected["connected_s"] >= 0


@pytest.mark.usefixtures("table", "replica")
async def test_as_text(relay: Relay) -> None:
    ran = await relay("status")
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0].split() == [
        "DESTINATION", "DUE", "OLDEST", "LATER", "RUNNING", "BLOCKED", "DEAD", "STANDING", "DONE/S",
    ]  # fmt: skip
    name, due, oldest, *counts = words(lines[:5], "billing")
    assert (name, due, counts) == ("billing", "3", ["2", "1", "3", "2", "1", "0.0"])
    assert oldest.endswith("s")
    assert words(lines[:5], "search")[3:] == ["0", "0", "0", "0", "0", "0.5", "paused:", "reindexing"]
    assert words(lines[:5], "attic")[-1] == "retired"
    assert words(lines[:5], "nobody")[1:] == ["0", "-", "0", "1", "0", "0", "0", "0.0", "not", "registered"]
    assert lines[-2:] == ["2 unrouted: no destination subscribes to their topic", "replicas: r1-0badcafe"]


async def test_lanes_that_wait_are_shown_with_the_reason_oldest_first(
    relay: Relay, put: Put, connection: Connection
) -> None:
    await connection.execute("INSERT INTO outbox.destination (name, paused_at, paused_why) VALUES ('off', now(), 'x')")
    past = {"run_at": "now() - interval '1 s'"}
    for age, (destination, entity, head) in enumerate(
        (
            ("billing", "dead", {**DEAD, "holds_lane": "true"}),
            ("billing", "runs", RUNNING),
            ("off", "paused", past),
            ("billing", "fails", {"run_at": "now() + interval '1 min'", "attempts": "1", "claims": "1"}),
            ("billing", "later", {"run_at": "now() + interval '1 h'", "scheduled_at": "now() + interval '1 h'"}),
            ("billing", "due", past),
            ("billing", "alone", past),
        )
    ):
        await put(destination, entity_key=entity, created_at=f"now() - interval '{60 - age} min'", **head)
    for destination, entity in (("billing", "dead"), ("billing", "dead"), ("billing", "runs"), ("off", "paused"),
                                ("billing", "fails"), ("billing", "later"), ("billing", "due")):  # fmt: skip
        await put(destination, entity_key=entity, status="'blocked'")
    lanes = (await relay("status", "--json")).json["lanes"]
    assert [(each["entity_key"], each["why"], each["behind"]) for each in lanes] == [
        ("dead", "dead", 2), ("runs", "running", 1), ("paused", "paused", 1), ("fails", "backoff", 1),
        ("due", "due", 1), ("later", "scheduled", 1),
    ]  # fmt: skip
    assert lanes[-1]["age_s"] == 0
    text = (await relay("status")).out
    assert "LANES THAT WAIT LONGEST" in text
    assert words(text.splitlines(), "billing dead")[3:5] == ["dead", "2"]


async def test_busy_entities_hide_no_dead_holder_and_no_destination_hides_another(
    relay: Relay, put: Put, connection: Connection
) -> None:
    await connection.execute(
        "INSERT INTO outbox.job (destination, topic, entity_key, payload, status) "
        "SELECT name, 'a', 'busy-' || n, '{}', status FROM generate_series(1, 300) AS n, "
        "unnest('{alpha,billing}'::text[]) AS name, unnest('{pending,blocked}'::text[]) AS status"
    )
    await connection.execute("UPDATE outbox.job SET created_at = now() - interval '1 min'")
    for destination in ("alpha", "billing"):
        await put(destination, "stands", created_at="now() - interval '2 h'", **DEAD, holds_lane="true")
    await put("zeta", "waits", created_at="now() - interval '1 h'")
    await put("zeta", "waits", status="'blocked'")
    lanes = (await relay("status", "--json")).json["lanes"]
    assert {(each["destination"], each["entity_key"], each["why"]) for each in lanes[:3]} == {
        ("alpha", "stands", "dead"), ("billing", "stands", "dead"), ("zeta", "waits", "due"),
    }  # fmt: skip


async def test_an_empty_outbox(relay: Relay) -> None:
    assert (await relay("status")).out.splitlines()[1:] == ["replicas: none connected"]
    assert (await relay("status", "--json")).json == {
        "cap": 2_000, "destinations": [], "lanes": [], "unrouted": 0, "replicas": [],
    }  # fmt: skip


async def test_counts_stop_at_a_cap_that_destinations_share(relay: Relay, connection: Connection) -> None:
    await connection.execute(
        "INSERT INTO outbox.job (destination, topic, payload) SELECT 'billing', 'a', '{}' FROM generate_series(1, 2001)"
    )
    for names, cap in ((["billing"], 2_000), (["b", "c"], 666)):
        await connection.execute("INSERT INTO outbox.destination (name) SELECT unnest(%s::text[])", (names,))
        status = (await relay("status", "--json")).json
        [billing] = [each for each in status["destinations"] if each["name"] == "billing"]
        assert (billing["due"], status["cap"]) == (cap, cap)
        assert words((await relay("status")).out.splitlines(), "billing")[1] == f"{cap}+"


async def test_a_count_that_stops_early_hides_neither_the_oldest_job_nor_an_entity_that_stands_still(
    relay: Relay, put: Put, connection: Connection
) -> None:
    """In the ranges of their indexes that a count of 2,000 does not come to."""
    await connection.execute(
        "INSERT INTO outbox.job (destination, topic, payload) SELECT 'billing', 'a', '{}' FROM generate_series(1, 2000)"
    )
    await connection.execute(
        "INSERT INTO outbox.job (destination, topic, payload, status, holds_lane, finished_at) "
        "SELECT 'billing', 'a', '{}', 'dead', false, now() FROM generate_series(1, 2000)"
    )
    await put(priority="3", created_at="now() - interval '1 h'", run_at="now() - interval '1 h'")
    await put(entity_key="stands", **DEAD, holds_lane="true")
    [billing] = (await relay("status", "--json")).json["destinations"]
    assert (billing["due"], billing["dead"], billing["standing_lanes"]) == (2_000, 2_000, 1)
    assert billing["oldest_due_age_s"] >= 3_600


async def test_blocked_jobs_beyond_those_that_were_looked_at_are_not_said_to_be_none(
    relay: Relay, put: Put, connection: Connection
) -> None:
    await connection.execute(
        "INSERT INTO outbox.job (destination, topic, entity_key, payload) "
        "SELECT 'billing', 'a', 'e' || n, '{}' FROM generate_series(1, 1999) AS n"
    )
    await put(entity_key="last")
    await put(entity_key="last", status="'blocked'")
    [billing] = (await relay("status", "--json")).json["destinations"]
    assert (billing["blocked"], billing["blocked_more"]) == (0, True)
    assert words((await relay("status")).out.splitlines(), "billing ")[5] == "0+"


async def test_however_many_destinations_there_are_some_of_each_are_counted(
    relay: Relay, connection: Connection
) -> None:
    await connection.execute("INSERT INTO outbox.destination (name) SELECT 'd' || n FROM generate_series(1, 1000) AS n")
    await connection.execute(
        "INSERT INTO outbox.job (destination, topic, payload) SELECT 'd77', 'a', '{}' FROM generate_series(1, 21)"
    )
    lines = (await relay("status")).out.splitlines()
    assert words(lines, "d77 ")[1] == "20+"


async def test_the_rate_is_that_of_the_newest_finished_jobs(relay: Relay, connection: Connection) -> None:
    """The newest 2,000 finished jobs of two destinations span half a minute: the rate is over that half."""
    await connection.execute(
        "INSERT INTO outbox.job (destination, topic, payload, status, finished_at, holds_lane) "
        "SELECT CASE n % 2 WHEN 0 THEN 'billing' ELSE 'search' END, 'a', '{}', 'done', "
        "now() - n / 4000.0 * interval '58 s', false FROM generate_series(1, 4000) AS n"
    )
    await connection.execute("INSERT INTO outbox.destination (name) VALUES ('billing'), ('search')")
    # 1,000 of each in the newest half, which is as old as the inserts are by now.
    for each in (await relay("status", "--json")).json["destinations"]:
        assert 1_000 / 45 < each["done_per_s"] <= 1_000 / 29


async def test_a_reader_may_look(relay: Relay, connection: Connection, database: str) -> None:
    await connection.execute("DROP ROLE IF EXISTS viewer")
    await connection.execute("CREATE ROLE viewer LOGIN IN ROLE outbox_reader")
    ran = await relay("status", "--json", RELAY_DATABASE_DSN=database.replace("postgres@", "viewer@"))
    assert ran.code == 0
