"""`relay job cancel`: the job ends, its lane goes on, and somebody's name stays with it."""

import asyncio
import json
import os
import pwd
import socket

import psycopg
import pytest

from relay import database as our_database
from relay.database import Database
from relay.errors import RelayError
from relay.job import Jobs
from tests.cli.conftest import DEAD, DONE, RUNNING, Connection, Put, Relay, fail, rows, until

UNFINISHED = {"pending": {}, "dead": {**DEAD, "holds_lane": "false"}, "scheduled": {"run_at": "now() + interval '1 h'"}}


async def status_of(connection: Connection, *ids: int) -> list[str]:
    found = await rows(connection, "SELECT status FROM outbox.job WHERE id = ANY (%s) ORDER BY id", list(ids))
    return [row[0] for row in found]


@pytest.mark.parametrize("kind", UNFINISHED)
async def test_a_job_that_is_not_running_or_finished_is_discarded(
    relay: Relay, put: Put, connection: Connection, kind: str
) -> None:
    job = await put(**UNFINISHED[kind])
    ran = await relay("job", "cancel", str(job))
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == f"job {job} was {'pending' if kind == 'scheduled' else kind} and is discarded\n"
    assert await status_of(connection, job) == ["discarded"]


async def test_a_job_without_a_destination_is_discarded(relay: Relay, put: Put, connection: Connection) -> None:
    job = await put(None, "order-1", topic="nobody.asked")
    cancelled = (await relay("job", "cancel", str(job), "--json")).json
    assert cancelled == {"id": job, "destination": None, "entity_key": "order-1", "was": "unrouted"}
    assert await status_of(connection, job) == ["discarded"]


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        (RUNNING, "is running: a request that is on its way cannot be called back"),
        (DONE, "was delivered already"),
        ({"status": "'discarded'", "finished_at": "now()", "holds_lane": "false"}, "was discarded already"),
    ],
    ids=["running", "done", "discarded"],
)
async def test_a_job_that_runs_or_has_finished_is_refused(
    relay: Relay, put: Put, connection: Connection, columns: dict[str, str], sentence: str
) -> None:
    job = await put(entity_key="order-1", **columns)
    before = await status_of(connection, job)
    ran = await relay("job", "cancel", str(job))
    assert (ran.code, ran.out) == (5, "")
    assert f"job {job} {sentence}" in ran.err
    assert await status_of(connection, job) == before
    assert await rows(connection, "SELECT FROM outbox.operation") == []


async def test_a_job_that_does_not_exist_is_refused(relay: Relay) -> None:
    ran = await relay("job", "cancel", "4711")
    assert (ran.code, ran.err) == (5, "relay: there is no job 4711\n")


@pytest.mark.parametrize("head", [{}, {"run_at": "now() + interval '1 h'"}, {**DEAD, "holds_lane": "true"}])
async def test_the_next_job_of_the_entity_becomes_due(
    relay: Relay, put: Put, connection: Connection, head: dict[str, str]
) -> None:
    first = await put(entity_key="order-1", **head)
    second, third = [await put(entity_key="order-1", status="'blocked'") for _ in range(2)]
    assert (await relay("job", "cancel", str(first))).code == 0
    assert await status_of(connection, first, second, third) == ["discarded", "pending", "blocked"]
    assert (await relay("job", "cancel", str(third))).code == 0
    assert await status_of(connection, first, second, third) == ["discarded", "pending", "discarded"]


async def test_the_name_of_the_person_and_the_reason_are_kept_and_shown(
    relay: Relay, put: Put, connection: Connection
) -> None:
    job = await put(entity_key="order-1")
    await relay("job", "cancel", str(job), "--by", "ada", "--why", "order 1 was withdrawn")
    [operation] = await rows(connection, "SELECT actor, verb, job_id, destination, detail FROM outbox.operation")
    assert operation == ("ada", "cancel", job, "billing", {"was": "pending", "why": "order 1 was withdrawn"})
    shown = await relay("job", "show", str(job))
    assert shown.out.splitlines()[0].endswith(" by ada: order 1 was withdrawn")


async def test_without_a_name_it_is_the_user_of_the_operating_system(
    relay: Relay, put: Put, connection: Connection
) -> None:
    await relay("job", "cancel", str(await put()))
    [(actor, detail)] = await rows(connection, "SELECT actor, detail FROM outbox.operation")
    assert actor == f"{pwd.getpwuid(os.getuid()).pw_name}@{socket.gethostname()}"
    assert detail == {"was": "pending"}


async def test_a_lane_that_stays_locked_is_refused_with_a_sentence(
    relay: Relay, put: Put, connection: Connection, database: str
) -> None:
    head = await put(entity_key="order-1")
    job = await put(entity_key="order-1", status="'blocked'")
    async with await psycopg.AsyncConnection.connect(database) as other:
        await other.execute("SELECT FROM outbox.job WHERE id = %s FOR UPDATE", (head,))
        ran = await relay("job", "cancel", str(job))
    assert (ran.code, ran.out) == (5, "")
    assert ran.err == f"relay: job {job} or its entity is locked by somebody else; try again\n"
    assert await status_of(connection, job) == ["blocked"]


async def test_a_holder_that_finishes_while_the_cancel_waits_for_it_is_followed_to_the_next(
    relay: Relay, put: Put, connection: Connection, database: str
) -> None:
    """The settle is half done when the cancel comes: it waits, and then finds another holder."""
    head = await put(entity_key="order-1", **RUNNING)
    second, third = [await put(entity_key="order-1", status="'blocked'") for _ in range(2)]
    async with await psycopg.AsyncConnection.connect(database) as settling:
        await settling.execute(*settle(head))
        cancelling = asyncio.create_task(relay("job", "cancel", str(second)))
        await until(lambda: waits_for(connection, settling))
        await settling.execute(*settle_lanes())
    assert (await cancelling).code == 0
    assert await status_of(connection, head, second, third) == ["done", "discarded", "pending"]


NAIVE = b"SELECT unnest(%(destinations)s::text[]), unnest(%(entity_keys)s::text[]), 0, true"


@pytest.mark.parametrize("lock", ["the holder", "only the cancelled row"])
async def test_a_settle_in_the_middle_of_a_cancel_leaves_no_job_asleep(
    put: Put, connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch, lock: str
) -> None:
    """The cancel stops after its update; the settle of the holder runs as far as it can; the cancel goes on.

    With the lock of the cancelled row alone the third job must be found asleep, or this test proves nothing.
    """
    right = lock == "the holder"
    if not right:
        monkeypatch.setitem(our_database.SQL, "lock_lanes", NAIVE)
    head = await put(entity_key="order-1", **RUNNING)
    second, third = [await put(entity_key="order-1", status="'blocked'") for _ in range(2)]
    async with (
        gate(connection),
        Database(database, name="test", pool_size=1) as pool,
        await psycopg.AsyncConnection.connect(database) as settling,
        await psycopg.AsyncConnection.connect(database, autocommit=True) as watching,
    ):
        await connection.execute("SELECT pg_advisory_lock(77)")
        cancelling = asyncio.create_task(Jobs(pool, actor="test").cancel(second, None))
        await until(lambda: waits_for(watching, connection))
        settled = asyncio.create_task(settle_as_far_as_possible(settling, head))
        await until(lambda: is_waiting(watching, settling))
        assert await status_of(watching, head, second) == ["running", "blocked"]
        await connection.execute("SELECT pg_advisory_unlock(77)")
        assert (await cancelling).was == "blocked"
        await settled
    assert await status_of(connection, head, second) == ["done", "discarded"]
    assert await status_of(connection, third) == ["pending" if right else "blocked"]


async def test_a_lane_that_never_holds_still_is_given_up(
    put: Put, connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    moving = NAIVE.replace(b"0, ", b"nextval('outbox.operation_id_seq'), ")
    monkeypatch.setitem(our_database.SQL, "lock_lanes", moving)
    job = await put(entity_key="order-1")
    async with Database(database, name="test", pool_size=1) as pool:
        with pytest.raises(RelayError, match="move on faster than they can be held"):
            await Jobs(pool, actor="test").cancel(job, None)
    assert await status_of(connection, job) == ["pending"]


async def test_a_dead_job_that_let_go_of_its_lane_is_discarded_without_touching_the_lane(
    relay: Relay, put: Put, connection: Connection
) -> None:
    dead = await put("search", "order-1", **DEAD, holds_lane="false")
    await fail(connection, dead, "503")
    running = await put("search", "order-1", **RUNNING)
    blocked = await put("search", "order-1", status="'blocked'")
    assert json.loads((await relay("job", "cancel", str(dead), "--json")).out)["was"] == "dead"
    assert await status_of(connection, dead, running, blocked) == ["discarded", "running", "blocked"]


class gate:  # noqa: N801 - reads as a word in `async with`
    """While it is open to this test, a discard stops after its update until advisory lock 77 is free."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def __aenter__(self) -> None:
        await self._connection.execute(
            "CREATE FUNCTION public.gate() RETURNS trigger LANGUAGE plpgsql AS "
            "$$BEGIN PERFORM pg_catalog.pg_advisory_xact_lock(77); RETURN NULL; END$$"
        )
        await self._connection.execute(
            "CREATE TRIGGER gate AFTER UPDATE ON outbox.job FOR EACH ROW WHEN (NEW.status = 'discarded') "
            "EXECUTE FUNCTION public.gate()"
        )

    async def __aexit__(self, *_: object) -> None:
        await self._connection.execute("DROP FUNCTION public.gate() CASCADE")


async def settle_as_far_as_possible(settling: Connection, head: int) -> None:
    await settling.execute(*settle(head))
    await settling.execute(*settle_lanes())
    await settling.commit()


def settle(job_id: int) -> tuple[bytes, dict[str, object]]:
    """The first statement of a settle that delivered this job; see tests/cli/conftest.py for its token."""
    return our_database.SQL["settle"], {
        "ids": [job_id], "claims": [1], "statuses": ["done"], "delays_s": [0.0], "charged": [True],
        "holds_lane": [False], "locked_by": "r1-0badcafe", "failed_ids": [], "failed_claims": [],
        "failed_attempts": [], "error_classes": [], "details": [], "http_statuses": [], "durations_s": [],
        "responses": [], "trace_ids": [], "keep_done": True,
    }  # fmt: skip


def settle_lanes() -> tuple[bytes, dict[str, object]]:
    """Its second statement, for the lane (billing, order-1), without chaining."""
    return our_database.SQL["settle_lanes"], {
        "destinations": ["billing"], "entity_keys": ["order-1"], "chains": [False],
        "locked_by": "r1-0badcafe", "lease_s": 60.0,
    }  # fmt: skip


async def waits_for(watching: Connection, holding: Connection) -> bool:
    """Whether any session waits for a lock of this one."""
    query = "SELECT FROM pg_stat_activity a WHERE %s = ANY (pg_blocking_pids(a.pid))"
    return bool(await rows(watching, query, holding.info.backend_pid))


async def is_waiting(watching: Connection, waiting: Connection) -> bool:
    """Whether this session waits for anybody's lock."""
    [(blockers,)] = await rows(watching, "SELECT cardinality(pg_blocking_pids(%s))", waiting.info.backend_pid)
    return bool(blockers)
