"""`relay operations` reads the trail that every other verb leaves."""

from pathlib import Path

from relay.verb import actor
from tests.cli.conftest import DEAD, Connection, Put, Relay, configure, rows


async def test_every_verb_that_changes_something_leaves_its_name_and_who_gave_it(
    relay: Relay, put: Put, configured: Path
) -> None:
    unrouted = await put(None, topic="order.paid")
    await relay("sync")
    first, second, third = [await put(**DEAD, holds_lane="false") for _ in range(3)]
    await relay("route", "--by", "ada")
    await relay("dead", "redrive", str(first), "--yes", "--by", "ben", "--why", "receiver is back")
    await relay("dead", "discard", str(second), "--yes", "--by", "cyd", "--why", "too late")
    await relay("job", "cancel", str(third), "--by", "dan")
    await relay("pause", "billing", "--by", "eve", "--why", "maintenance")
    await relay("resume", "billing", "--by", "fay")
    configure(configured, "  search:", "  finder:")
    await relay("sync", "--retire", "search")
    trail = [
        (each["actor"], each["verb"], each["destination"], each["job_id"], each["detail"])
        for each in (await relay("operations", "--json")).lines
    ]
    me = actor()
    finder = {"topics": ["*"], "on_dead": "skip", "generation": 0}
    assert trail == [
        (me, "retire", "search", None, {"generation": 0}),
        (me, "register", "finder", None, finder),
        ("fay", "resume", "billing", None, {}),
        ("eve", "pause", "billing", None, {"why": "maintenance"}),
        ("dan", "cancel", "billing", third, {"was": "dead"}),
        ("cyd", "discard", "billing", second, {"was": "dead", "why": "too late"}),
        ("ben", "redrive", "billing", first, {"was": "dead", "why": "receiver is back", "marked": False}),
        ("ada", "route", "billing", unrouted, {"destinations": ["billing", "search"]}),
        (me, "register", "search", None, finder),
        (me, "register", "billing", None, {"topics": ["order.paid"], "on_dead": "block", "generation": 0}),
    ]


async def test_what_changes_nothing_leaves_no_trace(relay: Relay, put: Put, connection: Connection) -> None:
    await relay("sync")
    await put(None, topic="order.paid")
    dead = await put(**DEAD, holds_lane="false")
    await connection.execute("TRUNCATE outbox.operation")
    for verb in (
        ("sync",), ("resume", "billing"), ("route", "--dry-run"), ("dead", "redrive", str(dead), "--dry-run"),
        ("dead", "discard", str(dead), "--dry-run"), ("job", "cancel", "999"),
    ):  # fmt: skip
        await relay(*verb)
    # A rollout that only raises the generation is no news either.
    await relay("sync", RELAY_REGISTRY_GENERATION="7")
    assert await rows(connection, "SELECT verb FROM outbox.operation") == []


async def test_the_trail_of_one_job_or_one_destination_newest_first(relay: Relay, put: Put) -> None:
    dead = await put(**DEAD, holds_lane="false")
    await relay("dead", "redrive", str(dead), "--yes", "--by", "ada", "--why", "now\x1b[2J")
    await relay("job", "cancel", str(dead), "--by", "ben")
    await relay("pause", "search", "--by", "cyd")
    assert [each["actor"] for each in (await relay("operations", "--job", str(dead), "--json")).lines] == ["ben", "ada"]
    of_search = await relay("operations", "--destination", "search", "--json")
    assert [each["actor"] for each in of_search.lines] == ["cyd"]
    assert [each["verb"] for each in (await relay("operations", "--limit", "2", "--json")).lines] == ["pause", "cancel"]
    text = (await relay("operations", "--job", str(dead))).out.splitlines()
    assert text[0].split() == ["AT", "WHO", "VERB", "DESTINATION", "JOB", "DETAIL"]
    assert text[1].split()[2:] == ["ben", "cancel", "billing", str(dead), "was:", "pending"]
    assert text[2].endswith("marked: False, was: dead, why: now\\x1b[2J")


async def test_a_reader_may_read_the_trail(relay: Relay, connection: Connection, database: str) -> None:
    await connection.execute("DROP ROLE IF EXISTS viewer")
    await connection.execute("CREATE ROLE viewer LOGIN IN ROLE outbox_reader")
    await relay("pause", "billing", "--by", "ada")
    ran = await relay("operations", "--json", RELAY_DATABASE_DSN=database.replace("postgres@", "viewer@"))
    assert ran.json["actor"] == "ada"
