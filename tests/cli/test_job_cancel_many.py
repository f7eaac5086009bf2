"""`relay job cancel` with filters: which jobs it ends, what it leaves, and that their lanes go on."""

from pathlib import Path

import pytest

from relay.bulk import Selection
from relay.database import Database
from relay.waiting import Waiting
from tests.cli.conftest import DEAD, DONE, RUNNING, Connection, Put, Relay, answered, rows
from tests.cli.test_job_cancel import status_of

BLOCKED = {"status": "'blocked'"}
OPERATIONS = "SELECT actor, verb, job_id, destination, detail FROM outbox.operation ORDER BY job_id"
JOBS = "SELECT j::text FROM outbox.job j ORDER BY id"


def said(**numbers: object) -> dict[str, object]:
    """The report in JSON with these numbers, and 0 for the others."""
    nothing = {"matched": 0, "changed": 0, "marked": 0, "refused": 0, "overtaken": 0, "left": 0}
    return {"verb": "discard", "dry_run": False, **nothing, "destinations": {}, "reasons": [], **numbers}


async def test_what_waits_for_a_destination_is_discarded_and_nothing_else(
    relay: Relay, put: Put, connection: Connection
) -> None:
    waiting = [
        await put(), await put(run_at="now() + interval '9 h'"), await put(claims="3", attempts="3"),
        await put(priority="3"), await put(entity_key="order-1"), await put(entity_key="order-1", **BLOCKED),
        await put(run_at="'20000-01-01'"),
    ]  # fmt: skip
    others = [
        await put(**DONE), await put(**DEAD, holds_lane="false"), await put("search"),
        await put(None, topic="nobody.asked"), await put(entity_key="order-2", **DEAD, holds_lane="true"),
    ]  # fmt: skip
    before = await status_of(connection, *others)
    ran = await relay("job", "cancel", "--destination", "billing", "--yes")
    assert (ran.code, ran.out, ran.err) == (0, "7 matched: 7 discarded (billing 7)\n", "")
    assert await status_of(connection, *waiting) == ["discarded"] * 7
    assert await status_of(connection, *others) == before


@pytest.mark.parametrize(
    ("arguments", "kinds"),
    [
        (["--destination", "search"], "cd"),
        (["--topic", "order.paid"], "ac"),
        (["--topic", "order.*"], "abc"),
        (["--entity", "order-1"], "bc"),
        (["--entity", "order-1", "--destination", "search"], "c"),
        (["--since", "2h"], "abd"),
        (["--until", "2h"], "c"),
        (["--since", "4h", "--until", "2h", "--topic", "order.*"], "c"),
        (["--topic", "*", "--limit", "3"], "abc"),
        (["--unrouted"], "u"),
        (["--unrouted", "--topic", "order.*"], ""),
    ],
)
async def test_a_job_is_cancelled_where_every_filter_fits(
    relay: Relay, put: Put, connection: Connection, arguments: list[str], kinds: str
) -> None:
    jobs = {
        "a": await put(),
        "b": await put(entity_key="order-1", topic="order.sent"),
        "c": await put("search", "order-1", created_at="now() - interval '3 h'"),
        "d": await put("search", topic="invoice.sent"),
        "u": await put(None, topic="nobody.asked"),
    }
    ran = await relay("job", "cancel", *arguments, "--yes")
    assert (ran.code, ran.err) == (0, "")
    cancelled = await rows(connection, "SELECT id FROM outbox.job WHERE status = 'discarded'")
    names = {id_: kind for kind, id_ in jobs.items()}
    expected = "bca" if "--limit" in arguments else kinds
    assert {names[row[0]] for row in cancelled} == set(expected)


async def test_a_walk_of_many_looks_misses_nothing(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looks of two rows and of batches of three, over jobs of every range of the indexes, some of which do not fit."""
    monkeypatch.setattr("relay.waiting._LOOK", 2)
    monkeypatch.setattr("relay.bulk._BATCH", 3)
    await put_of_every_range(connection)
    async with Database(database, name="test", pool_size=1) as pool:
        report = await Waiting(pool, actor="test").cancel(Selection(topic="a"))
        unrouted = await Waiting(pool, actor="test").cancel(Selection(topic="u", unrouted=True))
    assert (report.matched, report.changed, unrouted.changed) == (160, 160, 5)
    left = await rows(connection, "SELECT status, topic, count(*) FROM outbox.job GROUP BY 1, 2 ORDER BY 1, 2")
    assert left == [("discarded", "a", 160), ("discarded", "u", 5), ("pending", "b", 40), ("unrouted", "b", 5)]


async def put_of_every_range(connection: Connection) -> None:
    await connection.execute(
        "INSERT INTO outbox.job (destination, entity_key, priority, run_at, topic, payload) "
        "SELECT (ARRAY['billing', 'search'])[d], nullif(e, 0), p, now(), topic, '{}' "
        "FROM generate_series(1, 2) d, generate_series(0, 4) e, generate_series(0, 3) p, "
        "unnest('{a,a,a,a,b}'::text[]) topic"
    )
    await connection.execute("UPDATE outbox.job SET attempts = 1, claims = 1 WHERE id % 2 = 0")
    await connection.execute(
        "INSERT INTO outbox.job (topic, payload) SELECT t, '{}' FROM unnest('{u,b}'::text[]) t, generate_series(1, 5)"
    )


async def test_an_entity_that_loses_some_of_its_jobs_goes_on_in_order_with_the_others(
    relay: Relay, put: Put, connection: Connection
) -> None:
    head = await put(entity_key="order-1")
    kept = await put(entity_key="order-1", topic="order.kept", **BLOCKED)
    middle = await put(entity_key="order-1", **BLOCKED)
    last = await put(entity_key="order-1", topic="order.kept", **BLOCKED)
    assert (await relay("job", "cancel", "--topic", "order.paid", "--yes")).code == 0
    assert await status_of(connection, head, kept, middle, last) == ["discarded", "pending", "discarded", "blocked"]
    [transactions] = await rows(
        connection, "SELECT count(DISTINCT xmin::text) FROM outbox.job WHERE id = ANY (%s)", [head, kept]
    )
    assert transactions == (1,)


async def test_what_runs_is_left_and_counted_and_its_entity_waits_for_it(
    relay: Relay, put: Put, connection: Connection
) -> None:
    running = [await put(**RUNNING), await put(entity_key="order-1", **RUNNING)]
    behind = [await put(entity_key="order-1", topic=topic, **BLOCKED) for topic in ("order.paid", "order.kept")]
    await put("search", **RUNNING)
    ran = await relay("job", "cancel", "--destination", "billing", "--topic", "order.paid", "--yes", "--json")
    assert ran.code == 5
    sentence = "2 running: a request on its way cannot be called back; try again later"
    assert ran.err == f"relay: {sentence}\n"
    assert ran.json == said(matched=3, changed=1, refused=2, destinations={"billing": 1}, reasons=[sentence])
    assert await status_of(connection, *running, *behind) == ["running", "running", "discarded", "blocked"]


async def test_a_retired_destination_is_emptied(relay: Relay, put: Put, connection: Connection) -> None:
    await connection.execute("INSERT INTO outbox.destination (name, topics, retired_at) VALUES ('old', '{}', now())")
    jobs = [await put("old"), await put("old", "order-1"), await put("old", "order-1", **BLOCKED)]
    ran = await relay("job", "cancel", "--destination", "old", "--yes")
    assert (ran.code, ran.out) == (0, "3 matched: 3 discarded (old 3)\n")
    assert await status_of(connection, *jobs) == ["discarded"] * 3
    assert (await relay("job", "cancel", "--destination", "old", "--yes")).out == "0 matched: 0 discarded\n"


async def test_a_destination_that_was_never_registered_is_known_by_what_waits_for_it(
    relay: Relay, put: Put, connection: Connection
) -> None:
    job = await put("made-up")
    assert (await relay("job", "cancel", "--destination", "made-up", "--yes")).code == 0
    assert await status_of(connection, job) == ["discarded"]
    ran = await relay("job", "cancel", "--destination", "biling", "--yes")
    assert (ran.code, ran.out) == (5, "")
    assert "biling" in ran.err


async def test_unrouted_jobs_are_discarded_with_those_that_wait_left(
    relay: Relay, put: Put, connection: Connection
) -> None:
    unrouted = [await put(None, topic="nobody.asked"), await put(None, "order-1", topic="nobody.asked")]
    others = [await put(topic="nobody.asked"), await put(**RUNNING)]
    ran = await relay("job", "cancel", "--unrouted", "--topic", "nobody.*", "--yes", "--json")
    assert (ran.code, ran.json) == (0, said(matched=2, changed=2))
    assert await status_of(connection, *unrouted, *others) == ["discarded", "discarded", "pending", "running"]


async def test_a_dry_run_says_what_then_happens_and_changes_nothing(
    relay: Relay, put: Put, connection: Connection
) -> None:
    for n in range(3):
        await put(entity_key=f"order-{n}")
        await put(entity_key=f"order-{n}", **BLOCKED)
        await put()
    await put(**RUNNING)
    before = await rows(connection, JOBS)
    planned = await relay("job", "cancel", "--destination", "billing", "--dry-run", "--json")
    assert await rows(connection, JOBS) == before
    assert await rows(connection, OPERATIONS) == []
    done = await relay("job", "cancel", "--destination", "billing", "--yes", "--json")
    assert planned.code == done.code == 5
    assert planned.json == {**done.json, "dry_run": True}
    assert done.json["changed"] == len(await rows(connection, OPERATIONS)) == 9


async def test_who_did_it_and_why_is_kept_for_each_job(relay: Relay, put: Put, connection: Connection) -> None:
    head, behind = await put(entity_key="order-1"), await put(entity_key="order-1", **BLOCKED)
    await relay("job", "cancel", "--entity", "order-1", "--yes", "--by", "ada", "--why", "withdrawn")
    unrouted = await put(None)
    await relay("job", "cancel", "--unrouted", "--yes", "--by", "ben")
    assert await rows(connection, OPERATIONS) == [
        ("ada", "cancel", head, "billing", {"was": "pending", "why": "withdrawn"}),
        ("ada", "cancel", behind, "billing", {"was": "blocked", "why": "withdrawn"}),
        ("ben", "cancel", unrouted, None, {"was": "unrouted"}),
    ]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--yes"], "say which: an ID, a filter such as --destination, or --unrouted"),
        (["--limit", "1", "--yes"], "say which: an ID, a filter such as --destination, or --unrouted"),
        (["1", "--topic", "a"], "an ID and filters exclude each other"),
        (["1", "--unrouted"], "an ID and filters exclude each other"),
        (["1", "--dry-run"], "--limit, --rate and --dry-run go with filters, not with an ID"),
        (["1", "--limit", "1"], "--limit, --rate and --dry-run go with filters, not with an ID"),
        (["1", "--rate", "1"], "--limit, --rate and --dry-run go with filters, not with an ID"),
        (["--unrouted", "--destination", "billing", "--yes"], "a job that is --unrouted has no --destination"),
        (["--destination", "billing"], "there is nobody to ask: --yes does it, --dry-run only counts"),
        (["--since", "yesterday", "--yes"], "Invalid value for '--since'"),
    ],
)
async def test_a_vague_request_is_wrong_usage_and_cancels_nothing(
    relay: Relay, put: Put, connection: Connection, arguments: list[str], sentence: str
) -> None:
    job = await put(topic="a")
    assert job == 1
    ran = await relay("job", "cancel", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert sentence in ran.err
    assert await status_of(connection, job) == ["pending"]


@pytest.mark.parametrize(("answer", "code", "status"), [("y", 0, "discarded"), ("n", 1, "pending")])
async def test_a_person_sees_the_counts_and_is_asked(
    put: Put, connection: Connection, database: str, configured: Path, answer: str, code: int, status: str
) -> None:
    job = await put()
    ended, out, err = await answered(
        answer, "job", "cancel", "--destination", "billing", "--json", database=database, configured=configured
    )
    assert err.startswith("1 matched: 1 would be discarded (billing 1)\nDiscard 1? [y/N]: ")
    assert (ended, bool(out)) == (code, code == 0)
    assert await status_of(connection, job) == [status]
