"""`relay route`: jobs that nobody subscribed to go to those who subscribe by now."""

import asyncio

import psycopg
import pytest

from relay.database import Database
from relay.route import route
from tests.cli.conftest import Connection, Put, Relay, rows, until
from tests.cli.test_job_cancel import waits_for

JOBS = "SELECT destination, status FROM outbox.job ORDER BY id"
LANES = (
    "SELECT array_agg(payload::text::int ORDER BY id) FROM outbox.job WHERE status = 'pending'"
    " GROUP BY destination, entity_key ORDER BY destination, entity_key"
)


async def test_the_row_becomes_the_first_subscribers_job_and_the_others_get_copies(
    relay: Relay, put: Put, connection: Connection
) -> None:
    job = await put(None, "order-1", topic="order.paid", key="event-7", payload=' {"total": 1.10}', priority="2")
    other = await put(None, topic="nobody.asked")
    await connection.execute(
        "UPDATE outbox.job SET created_at = now() - interval '1 day', run_at = now() - interval '1 day'"
    )
    await relay("sync")
    await connection.execute("UPDATE outbox.destination SET topics = '{order.*}' WHERE name = 'search'")
    ran = await relay("route", "--by", "ada")
    assert (ran.code, ran.out, ran.err) == (0, "1 routed (billing 1, search 1), 1 without a subscriber\n", "")
    assert await rows(
        connection, "SELECT id, destination, status FROM outbox.job WHERE id <= %s ORDER BY id DESC", other
    ) == [
        (other, None, "unrouted"),
        (job, "billing", "pending"),
    ]
    one, two = await rows(
        connection,
        "SELECT topic, entity_key, idempotency_key, payload::text, priority, created_at, run_at, scheduled_at, status"
        " FROM outbox.job WHERE destination IS NOT NULL",
    )
    assert one == two
    assert one[:5] == ("order.paid", "order-1", "event-7", ' {"total": 1.10}', 2)
    assert await rows(
        connection, "SELECT actor, verb, job_id, destination, detail FROM outbox.operation WHERE verb = 'route'"
    ) == [("ada", "route", job, "billing", {"destinations": ["billing", "search"]})]


async def test_a_schedule_is_kept(relay: Relay, put: Put, connection: Connection) -> None:
    await put(None, run_at="'2222-02-02'", scheduled_at="'2222-02-02'")
    await relay("sync")
    assert (await relay("route")).code == 0
    found = await rows(connection, "SELECT run_at = '2222-02-02', scheduled_at = run_at FROM outbox.job")
    assert found == [(True, True), (True, True)]


async def test_a_topic_narrows_it_and_a_dry_run_says_what_then_happens(
    relay: Relay, put: Put, connection: Connection
) -> None:
    for topic in ("order.paid", "order.paid", "order.sent", "invoice.sent"):
        await put(None, topic=topic)
    await relay("sync")
    planned = (await relay("route", "--topic", "order.paid", "--dry-run", "--json")).json
    assert planned == {"dry_run": True, "routed": 2, "unrouted": 0, "destinations": {"billing": 2, "search": 2}}
    assert await rows(connection, "SELECT FROM outbox.job WHERE status <> 'unrouted'") == []
    assert await rows(connection, "SELECT FROM outbox.operation WHERE verb = 'route'") == []
    assert (await relay("route", "--topic", "order.paid", "--json")).json == {**planned, "dry_run": False}
    assert (await relay("route", "--topic", "order.*", "--dry-run")).out == (
        "1 would be routed (search 1), 0 without a subscriber\n"
    )
    assert (await relay("route", "--topic", "order.*")).code == 0
    statuses = await rows(connection, "SELECT topic, count(*) FROM outbox.job WHERE status = 'unrouted' GROUP BY 1")
    assert statuses == [("invoice.sent", 1)]


async def test_nothing_to_route_is_no_fault(relay: Relay) -> None:
    ran = await relay("route")
    assert (ran.code, ran.out) == (0, "0 routed, 0 without a subscriber\n")


async def test_a_retired_destination_gets_nothing(relay: Relay, put: Put, connection: Connection) -> None:
    await put(None)
    await connection.execute("INSERT INTO outbox.destination (name, topics, retired_at) VALUES ('old', '{*}', now())")
    assert (await relay("route")).out == "0 routed, 1 without a subscriber\n"


@pytest.mark.parametrize("at_once", [1, 3])
async def test_every_lane_is_in_the_order_of_inserts_however_many_route_at_once(
    connection: Connection, database: str, at_once: int
) -> None:
    """More than one transaction routes, between rows that nobody subscribes to."""
    await connection.execute(
        "INSERT INTO outbox.job (topic, entity_key, payload) "
        "SELECT CASE n % 5 WHEN 0 THEN 'x' ELSE 'a' END, 'order-' || n % 3, to_json(n) "
        "FROM generate_series(1, 700) AS n"
    )
    await connection.execute("INSERT INTO outbox.destination (name, topics) VALUES ('one', '{a}'), ('two', '{a}')")
    async with Database(database, name="test", pool_size=at_once) as pool:
        reports = await asyncio.gather(*(route(pool, actor="test") for _ in range(at_once)))
    assert sum(report.routed for report in reports) == 560
    lanes = [row[0] for row in await rows(connection, LANES)]
    assert sum(map(len, lanes)) == 2 * 560
    assert all(numbers == sorted(numbers) for numbers in lanes)


async def test_a_row_that_somebody_holds_ends_it_with_a_sentence(
    relay: Relay, put: Put, connection: Connection, database: str
) -> None:
    job = await put(None)
    await relay("sync")
    async with await psycopg.AsyncConnection.connect(database) as other:
        await other.execute("SELECT FROM outbox.job WHERE id = %s FOR UPDATE", (job,))
        routing = asyncio.create_task(relay("route"))
        await until(lambda: waits_for(connection, other))
        ran = await routing
    assert (ran.code, ran.out) == (5, "")
    assert "one of the unrouted jobs after 0 is locked by somebody else; 0 before it are routed" in ran.err
    assert await rows(connection, JOBS) == [(None, "unrouted")]
