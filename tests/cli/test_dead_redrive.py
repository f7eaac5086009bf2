"""`relay dead redrive` and `relay dead discard`: what is done, what is refused, and what stays behind."""

import asyncio
import re
from pathlib import Path

import psycopg
import pytest

from relay import database as our_database
from relay.bulk import Selection
from relay.database import Database
from relay.dead import Letters
from relay.errors import RelayError
from tests.cli.conftest import DEAD, DONE, RUNNING, Connection, Put, Relay, answered, fail, rows, until
from tests.cli.test_job_cancel import gate, is_waiting, settle, settle_lanes, status_of, waits_for

LET_GO = {**DEAD, "holds_lane": "false"}
STANDING = {**DEAD, "holds_lane": "true"}
STATE = (
    "SELECT status, holds_lane, attempts, claims, redrive, finished_at IS NULL, idempotency_key"
    " FROM outbox.job WHERE id = %s"
)
OPERATIONS = "SELECT actor, verb, job_id, destination, detail FROM outbox.operation ORDER BY id"


def said(verb: str, **numbers: object) -> dict[str, object]:
    """The report in JSON with these numbers, and 0 for the others."""
    nothing = {"matched": 0, "changed": 0, "marked": 0, "refused": 0, "overtaken": 0, "left": 0}
    return {"verb": verb, "dry_run": False, **nothing, "destinations": {}, "reasons": [], **numbers}


async def test_a_dead_job_without_an_entity_is_due_again_with_its_key_and_a_new_budget(
    relay: Relay, put: Put, connection: Connection
) -> None:
    job = await put(key="event-7", run_at="now() - interval '1 day'", **LET_GO)
    ran = await relay("dead", "redrive", str(job), "--yes", "--by", "ada", "--why", "they mended it")
    assert (ran.code, ran.out, ran.err) == (0, "1 matched: 1 redriven (billing 1)\n", "")
    assert await rows(connection, STATE, job) == [("pending", True, 0, 12, False, True, "event-7")]
    [(fresh,)] = await rows(connection, "SELECT run_at > now() - interval '1 min' FROM outbox.job")
    assert fresh
    detail = {"was": "dead", "marked": False, "why": "they mended it"}
    assert await rows(connection, OPERATIONS) == [("ada", "redrive", job, "billing", detail)]


async def test_a_dead_holder_resumes_its_lane_and_those_behind_it_keep_waiting_for_it(
    relay: Relay, put: Put, connection: Connection
) -> None:
    head = await put(entity_key="order-1", **STANDING)
    behind = await put(entity_key="order-1", status="'blocked'")
    ran = await relay("dead", "redrive", "--entity", "order-1", "--yes", "--json")
    assert (ran.code, ran.json) == (0, said("redrive", matched=1, changed=1, destinations={"billing": 1}))
    assert await status_of(connection, head, behind) == ["pending", "blocked"]
    assert await rows(connection, "SELECT redrive, holds_lane FROM outbox.job WHERE id = %s", head) == [(False, True)]


async def test_a_job_that_let_go_of_its_lane_is_refused_unless_forced_and_then_marked(
    relay: Relay, put: Put, connection: Connection
) -> None:
    ordered = await put("search", "order-1", **LET_GO)
    plain = await put("search", **LET_GO)
    ran = await relay("dead", "redrive", "--destination", "search", "--yes")
    assert (ran.code, ran.out) == (5, "2 matched: 1 redriven (search 1), 1 refused\n")
    assert ran.err == (
        "relay: 1 of entities whose later jobs may have been delivered already; "
        "--force sends them all the same, marked Relay-Redrive\n"
    )
    assert await status_of(connection, ordered, plain) == ["dead", "pending"]
    ran = await relay("dead", "redrive", "--destination", "search", "--yes", "--force")
    assert (ran.code, ran.out) == (0, "1 matched: 1 redriven (search 1), 1 of them marked Relay-Redrive\n")
    query = "SELECT id, status, redrive FROM outbox.job ORDER BY id"
    assert await rows(connection, query) == [(ordered, "pending", True), (plain, "pending", False)]


async def test_a_delivered_job_is_sent_again_by_its_id_marked_and_of_an_entity_only_with_force(
    relay: Relay, put: Put, connection: Connection
) -> None:
    plain, ordered = await put(key="event-7", **DONE), await put(entity_key="order-1", **DONE)
    ran = await relay("dead", "redrive", str(plain), str(ordered), "--yes", "--json")
    assert ran.code == 5
    assert ran.json["reasons"] == [line.removeprefix("relay: ") for line in ran.err.splitlines()]
    assert {**ran.json, "reasons": []} == said(
        "redrive", matched=2, changed=1, marked=1, refused=1, overtaken=1, destinations={"billing": 1}
    )
    assert await rows(connection, STATE, plain) == [("pending", True, 0, 2, True, True, "event-7")]
    assert await status_of(connection, ordered) == ["done"]
    assert (await relay("dead", "redrive", str(ordered), "--yes", "--force")).code == 0
    assert await status_of(connection, ordered) == ["pending"]
    assert [row[4]["was"] for row in await rows(connection, OPERATIONS)] == ["done", "done"]


async def test_jobs_that_are_neither_dead_nor_delivered_are_refused_by_name(
    relay: Relay, put: Put, connection: Connection
) -> None:
    pending, running, dead = await put(), await put(**RUNNING), await put(**LET_GO)
    ran = await relay("dead", "redrive", str(pending), str(running), "4711", str(dead), "--yes")
    assert (ran.code, ran.out) == (5, "3 matched: 1 redriven (billing 1), 3 refused\n")
    assert ran.err.splitlines() == [
        "relay: there is no job 4711",
        f"relay: job {pending} is pending, neither dead nor delivered",
        f"relay: job {running} is running, neither dead nor delivered",
    ]
    assert await status_of(connection, pending, running, dead) == ["pending", "running", "pending"]
    done = await put(**DONE)
    ran = await relay("dead", "discard", str(done), "--yes")
    assert (ran.code, ran.err) == (5, f"relay: job {done} is done, not dead\n")


async def test_a_discarded_head_lets_its_lane_go_on_in_the_same_transaction(
    relay: Relay, put: Put, connection: Connection
) -> None:
    heads = [await put(entity_key=f"order-{n}", **STANDING) for n in range(3)]
    behind = [await put(entity_key=f"order-{n}", status="'blocked'") for n in (0, 0, 1)]
    plain = await put(**LET_GO)
    ran = await relay("dead", "discard", "--all", "--yes", "--by", "ada", "--why", "withdrawn")
    assert (ran.code, ran.out) == (0, "4 matched: 4 discarded (billing 4)\n")
    assert await status_of(connection, *heads, plain) == ["discarded"] * 4
    assert await status_of(connection, *behind) == ["pending", "blocked", "pending"]
    [transactions] = await rows(
        connection, "SELECT count(DISTINCT xmin::text) FROM outbox.job WHERE id = ANY (%s)", [heads[0], behind[0]]
    )
    assert transactions == (1,)
    operations = await rows(connection, OPERATIONS)
    assert [row[2] for row in operations] == [*heads, plain]
    assert {(*row[:2], str(row[4])) for row in operations} == {
        ("ada", "discard", "{'was': 'dead', 'why': 'withdrawn'}")
    }
    shown = await relay("job", "show", str(plain))
    assert shown.out.splitlines()[0].endswith(" by ada: withdrawn")


@pytest.mark.parametrize("verb", ["redrive", "discard"])
async def test_a_dry_run_says_what_then_happens_and_changes_nothing(
    relay: Relay, put: Put, connection: Connection, verb: str
) -> None:
    for n in range(4):
        await put("billing", f"order-{n}", **STANDING)
        await put("search", f"order-{n}", **LET_GO)
        await fail(connection, await put("search", **LET_GO), "503")
    before = await rows(connection, "SELECT j::text FROM outbox.job j ORDER BY id")
    planned = await relay("dead", verb, "--all", "--dry-run", "--json")
    assert await rows(connection, "SELECT j::text FROM outbox.job j ORDER BY id") == before
    assert await rows(connection, OPERATIONS) == []
    done = await relay("dead", verb, "--all", "--yes", "--json")
    assert planned.code == done.code == (5 if verb == "redrive" else 0)
    assert planned.json == {**done.json, "dry_run": True}
    assert done.json["changed"] == len(await rows(connection, OPERATIONS)) == (8 if verb == "redrive" else 12)


async def test_a_limit_takes_the_first_by_id(relay: Relay, put: Put, connection: Connection) -> None:
    jobs = [await put(**LET_GO) for _ in range(5)]
    assert (await relay("dead", "redrive", "--all", "--limit", "2", "--yes")).code == 0
    assert await status_of(connection, *jobs) == ["pending"] * 2 + ["dead"] * 3


@pytest.mark.parametrize("verb", ["redrive", "discard"])
async def test_nothing_matched_is_no_fault(relay: Relay, verb: str) -> None:
    ran = await relay("dead", verb, "--error", "503", "--yes")
    assert (ran.code, ran.err) == (0, "")
    assert re.match(r"0 matched: 0 (redriven|discarded)$", ran.out)
    assert (await relay("dead", verb, "--all", "--yes", "--json")).json == said(verb)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--yes"], "say which: ids, a filter such as --destination, or --all"),
        (["1", "--all", "--yes"], "ids, filters and --all exclude each other"),
        (["1", "--topic", "a", "--yes"], "ids, filters and --all exclude each other"),
        (["1", "--limit", "1", "--yes"], "--limit goes with filters and --all, not with ids"),
        (["--error", "", "--yes"], "Invalid value for '--error': it is empty"),
        (["1", "--by", " ", "--yes"], "Invalid value for '--by': it is empty"),
        (["1"], "there is nobody to ask: --yes does it, --dry-run only counts"),
    ],
)
async def test_a_vague_request_is_wrong_usage(
    relay: Relay, put: Put, connection: Connection, arguments: list[str], sentence: str
) -> None:
    job = await put(**LET_GO)
    ran = await relay("dead", "discard", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert sentence in ran.err
    assert await status_of(connection, job) == ["dead"]


@pytest.mark.parametrize(("answer", "code", "status"), [("y", 0, "pending"), ("n", 1, "dead")])
async def test_a_person_sees_the_counts_and_is_asked(
    put: Put, connection: Connection, database: str, configured: Path, answer: str, code: int, status: str
) -> None:
    job = await put(**LET_GO)
    ended, out, err = await answered(
        answer, "dead", "redrive", "--all", "--json", database=database, configured=configured
    )
    assert err.startswith("1 matched: 1 would be redriven (billing 1)\nRedrive 1? [y/N]: ")
    assert (ended, bool(out)) == (code, code == 0)
    assert await status_of(connection, job) == [status]


async def test_a_rate_is_kept(put: Put, connection: Connection, database: str) -> None:
    """Six jobs at 20 a second, two at a time: no sooner than the last pair's turn, by the database's clock."""
    for _ in range(6):
        await put(**LET_GO)
    async with Database(database, name="test", pool_size=1) as pool:
        report = await Letters(pool, actor="test").redrive(Selection(), rate_per_s=20.0)
    assert report.changed == 6
    [(batches, seconds)] = await rows(
        connection,
        "SELECT count(DISTINCT at), extract(epoch FROM max(at) - min(at))::float8 FROM outbox.operation",
    )
    assert batches == 3
    assert seconds >= 4 / 20.0 - 0.02


async def test_what_dies_after_the_count_is_left_alone(put: Put, connection: Connection, database: str) -> None:
    counted = await put(**LET_GO)
    async with Database(database, name="test", pool_size=1) as pool:
        letters = Letters(pool, actor="test")
        pinned = await letters.pin(Selection())
        later = await put(**{**LET_GO, "finished_at": "clock_timestamp()"})
        assert (await letters.redrive(pinned)).changed == 1
    assert await status_of(connection, counted, later) == ["pending", "dead"]


async def test_a_row_that_somebody_holds_is_left_and_the_others_are_done(
    put: Put, connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(our_database, "_LOCK_TIMEOUT_MS", 50)
    jobs = [await put(entity_key=f"order-{n}", **STANDING) for n in range(5)]
    async with (
        await psycopg.AsyncConnection.connect(database) as other,
        Database(database, name="test", pool_size=1) as pool,
    ):
        await other.execute("SELECT FROM outbox.job WHERE id = %s FOR UPDATE", (jobs[2],))
        letters = Letters(pool, actor="test")
        for act in (letters.redrive, letters.discard):
            report = await act(Selection(ids=(jobs[1], jobs[2], jobs[3])) if act == letters.redrive else Selection())
            assert report.left == 1
            assert report.reasons == ["1 locked or changed by somebody else meanwhile; try again"]
    assert await status_of(connection, *jobs) == ["discarded", "pending", "dead", "pending", "discarded"]


@pytest.mark.parametrize("lock", ["the holder", "only the discarded row"])
async def test_a_settle_in_the_middle_of_a_discard_leaves_no_job_asleep(
    put: Put, connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch, lock: str
) -> None:
    """A lower id committed late and runs; behind the dead job another one is blocked.

    The discard stops after its update, the settle of the running job goes as far as it can, the discard goes on, and
    then the settle. With the lock of the dead row alone the blocked job must be found asleep, or this test proves
    nothing.
    """
    right = lock == "the holder"
    if not right:
        nobody = b"SELECT '', '', 0, false WHERE %(destinations)s::text[] IS NULL OR %(entity_keys)s::text[] IS NULL"
        monkeypatch.setitem(our_database.SQL, "lock_lanes", nobody)
    late = await put(entity_key="order-1", **RUNNING)
    dead = await put(entity_key="order-1", **STANDING)
    blocked = await put(entity_key="order-1", status="'blocked'")
    async with (
        gate(connection),
        Database(database, name="test", pool_size=1) as pool,
        await psycopg.AsyncConnection.connect(database) as settling,
        await psycopg.AsyncConnection.connect(database, autocommit=True) as watching,
    ):
        await connection.execute("SELECT pg_advisory_lock(77)")
        discarding = asyncio.create_task(Letters(pool, actor="test").discard(Selection(ids=(dead,))))
        await until(lambda: waits_for(watching, connection))
        settled = asyncio.create_task(settle_without_commit(settling, late))
        if right:
            await until(lambda: is_waiting(watching, settling))
        else:
            await settled
        await connection.execute("SELECT pg_advisory_unlock(77)")
        assert (await discarding).changed == 1
        await settled
        await settling.commit()
    assert await status_of(connection, late, dead) == ["done", "discarded"]
    assert await status_of(connection, blocked) == ["pending" if right else "blocked"]


async def settle_without_commit(settling: Connection, job: int) -> None:
    await settling.execute(*settle(job))
    await settling.execute(*settle_lanes())


async def test_lanes_that_never_hold_still_are_given_up(
    put: Put, connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    moving = (
        b"SELECT 'billing', 'order-1', nextval('outbox.operation_id_seq'), true"
        b" WHERE %(destinations)s::text[] IS NOT NULL AND %(entity_keys)s::text[] IS NOT NULL"
    )
    monkeypatch.setitem(our_database.SQL, "lock_lanes", moving)
    job = await put(entity_key="order-1", **STANDING)
    async with Database(database, name="test", pool_size=1) as pool:
        with pytest.raises(RelayError, match="move on faster than they can be held"):
            await Letters(pool, actor="test").discard(Selection())
    assert await status_of(connection, job) == ["dead"]
