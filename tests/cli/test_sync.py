"""`relay sync` registers what is configured, and never undoes a newer deploy."""

from pathlib import Path

from tests.cli.conftest import Connection, Relay, configure, rows

REGISTRY = "SELECT name, topics, on_dead, generation, retired_at IS NOT NULL FROM outbox.destination ORDER BY name"


async def test_the_configured_destinations_are_registered_once(relay: Relay, connection: Connection) -> None:
    first = await relay("sync")
    assert (first.code, first.out) == (0, "registered: billing, search\nretired: nothing new\n")
    assert await rows(connection, REGISTRY) == [
        ("billing", ["order.paid"], "block", 0, False),
        ("search", ["*"], "skip", 0, False),
    ]
    second = await relay("sync", "--json")
    assert second.json == {"registered": [], "retired": [], "not_configured": []}


async def test_what_was_registered_gets_the_next_job(relay: Relay, connection: Connection) -> None:
    await relay("sync")
    await connection.execute("INSERT INTO outbox.job (topic, payload) VALUES ('order.paid', '{}')")
    found = await rows(connection, "SELECT destination FROM outbox.job ORDER BY destination")
    assert found == [("billing",), ("search",)]


async def test_a_higher_generation_replaces_and_a_lower_one_is_refused_and_changes_nothing(
    relay: Relay, connection: Connection, configured: Path
) -> None:
    assert (await relay("sync", RELAY_REGISTRY_GENERATION="7")).code == 0
    configure(configured, "[order.paid]", "[order.shipped]")
    before = await rows(connection, REGISTRY)
    old = await relay("sync", RELAY_REGISTRY_GENERATION="6")
    assert (old.code, old.out) == (5, "")
    assert "the registry is of generation 7 and this configuration of registry.generation 6" in old.err
    assert await rows(connection, REGISTRY) == before
    assert (await relay("sync", RELAY_REGISTRY_GENERATION="8")).out.startswith("registered: billing, search\n")
    assert (await rows(connection, REGISTRY))[0] == ("billing", ["order.shipped"], "block", 8, False)


async def test_the_same_generation_replaces(relay: Relay, connection: Connection, configured: Path) -> None:
    await relay("sync")
    configure(configured, "[order.paid]", "[order.shipped]")
    assert (await relay("sync")).out.startswith("registered: billing\n")
    assert (await rows(connection, REGISTRY))[0][1] == ["order.shipped"]


async def test_a_destination_that_was_removed_stays_until_it_is_retired_by_name(
    relay: Relay, connection: Connection, configured: Path
) -> None:
    await relay("sync")
    configure(configured, "  search:", "  finder:")
    left = await relay("sync")
    assert "search is registered but not configured; `relay sync --retire search` stops routing to it" in left.out
    assert [row[0] for row in await rows(connection, REGISTRY) if not row[4]] == ["billing", "finder", "search"]
    retired = await relay("sync", "--retire", "search", "--json")
    assert retired.json == {"registered": [], "retired": ["search"], "not_configured": []}
    await connection.execute("INSERT INTO outbox.job (topic, payload) VALUES ('other', '{}')")
    assert await rows(connection, "SELECT destination FROM outbox.job") == [("finder",)]


async def test_a_retired_destination_that_is_configured_again_comes_back(
    relay: Relay, connection: Connection, configured: Path
) -> None:
    await relay("sync")
    configure(configured, "  search:", "  finder:")
    await relay("sync", "--retire", "search")
    configure(configured)
    assert (await relay("sync")).out.startswith("registered: search\n")
    assert not (await rows(connection, REGISTRY))[-1][4]


async def test_a_name_that_is_still_configured_or_was_never_registered_is_not_retired(
    relay: Relay, connection: Connection
) -> None:
    configured = await relay("sync", "--retire", "search")
    assert (configured.code, configured.out) == (5, "")
    assert "search: still configured" in configured.err
    never = await relay("sync", "--retire", "serach")
    assert never.code == 5
    assert never.err == "relay: serach: never registered; registered are none\n"
    assert await rows(connection, REGISTRY) == []
