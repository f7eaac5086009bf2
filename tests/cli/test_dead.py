"""`relay dead list` and `relay dead show`, and which dead letters a selection means."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio

from relay.bulk import Selection
from relay.database import Database
from relay.dead import Letters
from tests.cli.conftest import DEAD, DONE, Connection, Put, Relay, fail, rows

LET_GO = {**DEAD, "holds_lane": "false"}
STANDING = {**DEAD, "holds_lane": "true"}


@pytest_asyncio.fixture
async def letters(put: Put, connection: Connection) -> dict[str, int]:
    """One dead letter of each kind, by a word for it; and jobs that are none."""
    made = {
        "plain": await put(topic="order.paid", **LET_GO),
        "standing": await put(entity_key="order-1", topic="order.sent", **STANDING),
        "skipped": await put("search", "order-2", topic="order.sent.late", **LET_GO),
        "fresh": await put("search", topic="invoice.sent", **{**LET_GO, "finished_at": "now() - interval '10 min'"}),
    }
    await fail(connection, made["plain"], "503 Service Unavailable", claim=11)
    await fail(connection, made["plain"], "404 Not \x1b[31mFound", claim=12)
    await fail(connection, made["standing"], "503 Service Unavailable", claim=12)
    await put(**DONE)
    await put()
    return made


DIED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


async def listed(relay: Relay, *arguments: str) -> list[int]:
    return [each["id"] for each in (await relay("dead", "list", "--json", *arguments)).lines]


@pytest.mark.parametrize(
    ("selection", "kinds"),
    [
        (Selection(), ["plain", "standing", "skipped", "fresh"]),
        (Selection(destination="search"), ["skipped", "fresh"]),
        (Selection(topic="order.sent"), ["standing"]),
        (Selection(topic="order.*"), ["plain", "standing", "skipped"]),
        (Selection(topic="order.sent.*"), ["skipped"]),
        (Selection(topic="*"), ["plain", "standing", "skipped", "fresh"]),
        (Selection(entity_key="order-2"), ["skipped"]),
        (Selection(since=timedelta(hours=2)), ["fresh"]),
        (Selection(until=timedelta(hours=2)), ["plain", "standing", "skipped"]),
        (Selection(since=DIED, until=DIED), ["plain", "standing", "skipped"]),
        (Selection(since=DIED + timedelta(milliseconds=1), until=timedelta(hours=2)), []),
        (Selection(error="service UNAVAILABLE"), ["standing"]),
        (Selection(error="status: 4"), ["plain"]),
        (Selection(error="503", destination="search"), []),
        (Selection(limit=3), ["plain", "standing", "skipped"]),
    ],
)
async def test_a_dead_letter_is_found_by_every_filter_that_fits(
    database: str, letters: dict[str, int], selection: Selection, kinds: Sequence[str]
) -> None:
    async with Database(database, name="test", pool_size=1) as pool:
        found = await Letters(pool, actor="test").find(selection)
    assert [letter.id for letter in found] == [letters[kind] for kind in kinds]


async def test_every_filter_has_an_option(relay: Relay, letters: dict[str, int]) -> None:
    filters = ("--destination", "billing", "--topic", "order.*", "--entity", "order-1", "--error", "503")
    times = ("--since", "2026-01-02T03:04:05", "--until", "2026-01-02T05:04:05+02:00")
    assert await listed(relay, *filters, *times) == [letters["standing"]]
    assert await listed(relay, "--since", "2h", "--limit", "1") == [letters["fresh"]]


async def test_as_text_with_the_last_error_and_how_many_jobs_wait_behind(
    relay: Relay, letters: dict[str, int], put: Put
) -> None:
    for _ in range(3):
        await put(entity_key="order-1", status="'blocked'")
    ran = await relay("dead", "list")
    assert (ran.code, ran.err) == (0, "")
    head, plain, standing, skipped, _, count = ran.out.splitlines()
    assert head.split() == ["ID", "DESTINATION", "TOPIC", "ENTITY", "DEAD", "SINCE", "ATTEMPTS", "BEHIND", "ERROR"]
    assert plain.split() == [
        str(letters["plain"]), "billing", "order.paid", "-", "2026-01-02", "03:04:05Z", "12", "-",
        "status:", "404", "Not", "\\x1b[31mFound",
    ]  # fmt: skip
    assert standing.split()[3:8] == ["order-1", "2026-01-02", "03:04:05Z", "12", "3"]
    assert skipped.split()[-3:] == ["12", "-", "-"]
    assert count == "4 dead letters"
    assert (await relay("dead", "list", "--limit", "2")).out.endswith("2 dead letters; --limit 20 may show more\n")


async def test_as_json(relay: Relay, letters: dict[str, int]) -> None:
    assert (await relay("dead", "list", "--json", "--entity", "order-1")).json == {
        "id": letters["standing"], "destination": "billing", "topic": "order.sent", "entity_key": "order-1",
        "status": "dead", "holds_lane": True, "redrive": False, "attempts": 12,
        "finished_at": "2026-01-02T03:04:05+00:00", "error": "status: 503 Service Unavailable", "behind": 0,
    }  # fmt: skip


async def test_nothing_found_is_no_fault(relay: Relay) -> None:
    assert (await relay("dead", "list")).out == "0 dead letters\n"
    ran = await relay("dead", "list", "--json")
    assert (ran.code, ran.out) == (0, "")


async def test_a_misspelt_destination_is_refused_and_one_that_was_never_registered_is_not(
    relay: Relay, put: Put
) -> None:
    nobody = await put("nobody", **LET_GO)
    assert await listed(relay, "--destination", "nobody") == [nobody]
    ran = await relay("dead", "list", "--destination", "biling")
    assert (ran.code, ran.err) == (5, "relay: there is no destination biling; did you mean billing?\n")


async def test_a_time_that_is_none_is_wrong_usage(relay: Relay) -> None:
    ran = await relay("dead", "list", "--since", "2w")
    assert ran.code == 2
    assert "'2w' is neither a time such as 2026-01-31T08:00Z nor an age such as 30m, 2h, 7d" in ran.err


async def test_everything_about_one_is_shown(relay: Relay, letters: dict[str, int], put: Put) -> None:
    await put(entity_key="order-1", status="'blocked'")
    ran = await relay("dead", "show", str(letters["standing"]))
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0].endswith("503 Service Unavailable; its entity stands still behind it; redrive or discard it")
    assert lines[-3:] == ["  {}", "", "  1 jobs of its entity wait behind it"]
    shown = (await relay("dead", "show", str(letters["standing"]), "--json")).json
    assert (shown["behind"], shown["content"]["text"], len(shown["job"]["failures"])) == (1, "{}", 1)


async def test_a_job_that_is_not_dead_is_not_shown(relay: Relay, put: Put) -> None:
    job = await put()
    ran = await relay("dead", "show", str(job))
    assert (ran.code, ran.out) == (5, "")
    assert ran.err == f"relay: job {job} is pending, not dead; `relay job show {job}` says more\n"
    assert (await relay("dead", "show", "4711")).code == 5


async def test_a_walk_over_many_looks_at_each_once_and_stays_within_its_destination(
    connection: Connection, database: str
) -> None:
    """More than one statement looks at, in three destinations."""
    await connection.execute(
        "INSERT INTO outbox.job (destination, topic, payload, status, finished_at, holds_lane, priority) "
        "SELECT 'd' || n % 3, 'a.' || n % 7, '{}', 'dead', now(), false, 1 FROM generate_series(1, 6300) AS n"
    )
    query = "SELECT id FROM outbox.job WHERE destination = ANY (%s) AND topic ~ %s ORDER BY destination, id"
    async with Database(database, name="test", pool_size=1) as pool:
        for chosen, names, topics in (
            (Selection(), ["d0", "d1", "d2"], "."),
            (Selection(destination="d1"), ["d1"], "."),
            (Selection(destination="d1", topic="a.3"), ["d1"], "a.3"),
            (Selection(topic="a.3"), ["d0", "d1", "d2"], "a.3"),
        ):
            found = [letter.id for letter in await Letters(pool, actor="test").find(chosen)]
            assert found == [row[0] for row in await rows(connection, query, names, topics)]
        limited = await Letters(pool, actor="test").find(Selection(destination="d2", limit=1500))
        assert [len(limited), {letter.destination for letter in limited}] == [1500, {"d2"}]
