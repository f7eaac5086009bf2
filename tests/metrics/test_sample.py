"""The gauges that cost a query: right, taken once for all, and cheap."""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import psycopg
import pytest

from relay import sample
from relay.database import SQL, Database
from relay.demo.nest import Nest
from relay.migrate import migrate
from relay.sample import Sampler
from tests.conftest import Connection
from tests.failover.standby import pair
from tests.metrics.scrape import Web, free_port
from tests.receiver import Receiver
from tests.service.replica import Installation

Taken = dict[tuple[str, str, str], float]


@pytest.fixture
async def connections(database: str) -> AsyncIterator[list[Database]]:
    """The pools of three replicas."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(Database(database, name=f"relay {number}-00000000")) for number in range(3)
        ]


def sampler(database: Database, every_s: float = 3600.0) -> Sampler:
    """A sampler whose samples are good for an hour."""
    return Sampler(database, locked_by="first", every_s=every_s, rng=random.Random(1))


async def taken(database: Database) -> Taken:
    """One sample, by name, destination and reason."""
    one = sampler(database, every_s=0.0)
    await one.step()
    return {(each.name, each.destination, each.reason): each.value for each in one.gauges}


async def insert(connection: Connection, rows: str) -> None:
    """Jobs whatever their state: no trigger runs."""
    async with connection.transaction():
        await connection.execute("SET LOCAL session_replication_role = replica")
        await connection.execute(
            b"INSERT INTO outbox.job (destination, topic, payload, claims, attempts, entity_key, status, holds_lane,"
            b" run_at, finished_at, created_at) VALUES " + rows.encode()
        )


AN_HOUR_AGO = "now() - interval '1 h'"
TOMORROW = "now() + interval '1 d'"
# What looks like a transaction that holds back vacuum.
VACUUMING = """
SELECT 1
  FROM pg_stat_progress_vacuum v
  JOIN pg_stat_activity a USING (pid)
 WHERE v.relid = 'public.large'::regclass AND a.backend_xmin IS NOT NULL
"""


async def test_a_backlog_is_counted_by_destination_with_the_age_of_its_oldest_due_job(
    connection: Connection, connections: list[Database]
) -> None:
    await insert(
        connection,
        f"""('a', 't', '{{}}', 0, 0, NULL, 'pending', true, now(), NULL, {AN_HOUR_AGO}),
            ('a', 't', '{{}}', 0, 0, NULL, 'pending', true, now(), NULL, now()),
            ('a', 't', '{{}}', 1, 1, NULL, 'pending', true, now() + interval '1 d', NULL, now()),
            ('b', 't', '{{}}', 1, 1, NULL, 'dead', false, now(), now(), now())""",
    )
    gauges = await taken(connections[0])
    assert gauges["relay.backlog.due", "a", ""] == 2
    assert 3600 <= gauges["relay.backlog.age", "a", ""] < 3700
    assert gauges["relay.backlog.later", "a", ""] == 1
    assert gauges["relay.dead.letters", "b", ""] == 1
    assert gauges["relay.backlog.due", "b", ""] == 0


@pytest.mark.parametrize(
    ("reason", "holder"),
    [
        ("dead", f"('a', 't', '{{}}', 1, 1, 'e', 'dead', true, now(), now(), {AN_HOUR_AGO})"),
        ("backoff", f"('a', 't', '{{}}', 1, 1, 'e', 'pending', true, {TOMORROW}, NULL, {AN_HOUR_AGO})"),
        ("scheduled", f"('a', 't', '{{}}', 0, 0, 'e', 'pending', true, {TOMORROW}, NULL, {AN_HOUR_AGO})"),
        ("paused", f"('a', 't', '{{}}', 0, 0, 'e', 'pending', true, now(), NULL, {AN_HOUR_AGO})"),
    ],
)
async def test_a_blocked_lane_is_shown_with_why_how_many_wait_behind_and_for_how_long(
    connection: Connection, connections: list[Database], reason: str, holder: str
) -> None:
    behind = "('a', 't', '{}', 0, 0, 'e', 'blocked', true, now(), NULL, now())"
    alone = f"('a', 't', '{{}}', 1, 1, 'alone', 'pending', true, {TOMORROW}, NULL, now())"
    await insert(connection, ", ".join([holder, behind, behind, alone]))
    if reason == "paused":
        await connection.execute(
            "INSERT INTO outbox.destination (name, paused_at, paused_why) VALUES ('a', now(), 'x')"
        )
    gauges = await taken(connections[0])
    lanes = {key[2]: value for key, value in gauges.items() if key[:2] == ("relay.lanes.blocked", "a")}
    assert lanes == {**dict.fromkeys(sample.REASONS, 0), reason: 1}
    assert gauges["relay.lanes.waiting", "a", reason] == 2
    assert gauges["relay.backlog.blocked", "a", ""] == 2
    assert 3600 <= gauges["relay.lanes.age", "a", reason] < 3700
    assert gauges["relay.destination.paused", "a", ""] == (reason == "paused")


async def test_a_lane_whose_first_job_is_scheduled_for_later_has_not_begun_to_wait(
    connection: Connection, connections: list[Database]
) -> None:
    await connection.execute(
        "INSERT INTO outbox.job (destination, topic, entity_key, payload, run_at)"
        " VALUES ('a', 't', 'e', '{}', now() + interval '1 d'), ('a', 't', 'e', '{}', now())"
    )
    gauges = await taken(connections[0])
    assert gauges["relay.lanes.blocked", "a", "scheduled"] == gauges["relay.lanes.waiting", "a", "scheduled"] == 1
    assert gauges["relay.lanes.age", "a", "scheduled"] == 0


async def test_a_lane_whose_job_runs_or_may_run_is_not_blocked(
    connection: Connection, connections: list[Database]
) -> None:
    await insert(
        connection,
        """('a', 't', '{}', 0, 0, 'e', 'pending', true, now(), NULL, now()),
           ('a', 't', '{}', 0, 0, 'e', 'blocked', true, now(), NULL, now())""",
    )
    gauges = await taken(connections[0])
    assert [gauges["relay.lanes.blocked", "a", reason] for reason in sample.REASONS] == [0, 0, 0, 0]


async def test_unrouted_jobs_and_those_of_destinations_that_nobody_has_are_counted(
    connection: Connection, connections: list[Database]
) -> None:
    await connection.execute("INSERT INTO outbox.destination (name, retired_at) VALUES ('kept', NULL), ('left', now())")
    await insert(
        connection,
        """('kept', 't', '{}', 0, 0, NULL, 'pending', true, now(), NULL, now()),
           ('left', 't', '{}', 0, 0, NULL, 'pending', true, now(), NULL, now()),
           ('never', 't', '{}', 0, 0, NULL, 'pending', true, now(), NULL, now()),
           (NULL, 't', '{}', 0, 0, NULL, 'unrouted', true, now(), NULL, now())""",
    )
    gauges = await taken(connections[0])
    orphaned = {key[1]: value for key, value in gauges.items() if key[0] == "relay.jobs.orphaned"}
    assert orphaned == {"kept": 0, "left": 1, "never": 1}
    assert gauges["relay.jobs.unrouted", "", ""] == 1


async def test_of_names_that_nobody_registered_there_are_a_hundred_at_most_however_many_producers_make_up(
    connection: Connection, connections: list[Database]
) -> None:
    await connection.execute("INSERT INTO outbox.destination (name) VALUES ('zebra')")
    await connection.execute(
        "INSERT INTO outbox.job (destination, topic, payload) SELECT 'a' || n, 't', '{}' FROM generate_series(1, 150) n"
    )
    await connection.execute("INSERT INTO outbox.job (destination, topic, payload) VALUES ('zebra', 't', '{}')")
    gauges = await taken(connections[0])
    assert len({destination for _, destination, _ in gauges if destination.startswith("a")}) == 100
    assert gauges["relay.backlog.due", "zebra", ""] == 1


@pytest.mark.parametrize(("registered", "cap"), [(0, 5_000), (8, 5_000), (9, 4_444), (400, 100), (4_000, 100)])
def test_the_more_destinations_there_are_the_fewer_jobs_of_each_are_counted(registered: int, cap: int) -> None:
    assert sample.cap_of_each(registered) == cap


async def test_dead_rows_of_the_job_table_are_counted(connection: Connection, connections: list[Database]) -> None:
    await connection.execute("INSERT INTO outbox.job (topic, payload) SELECT 't', '{}' FROM generate_series(1, 30)")
    before = (await taken(connections[0]))["relay.table.dead_rows", "", ""]
    await connection.execute("UPDATE outbox.job SET priority = 2")
    await connection.execute("SELECT pg_stat_force_next_flush()")
    assert (await taken(connections[0]))["relay.table.dead_rows", "", ""] >= before + 30


async def test_an_open_transaction_holds_back_vacuum(
    connection: Connection, connections: list[Database], database: str
) -> None:
    assert (await taken(connections[0]))["relay.vacuum.held", "", ""] == 0
    async with await type(connection).connect(database) as other:
        await other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await other.execute("SELECT 1 FROM outbox.job")
        await connection.execute("INSERT INTO outbox.job (topic, payload) VALUES ('t', '{}')")
        gauges = await taken(connections[0])
    assert gauges["relay.vacuum.held", "", ""] > 0
    assert gauges["relay.vacuum.horizon", "", ""] >= 1


async def test_a_standby_that_says_what_it_reads_holds_back_vacuum() -> None:
    with pair(synchronous=False) as servers:
        await migrate(dsn := servers.primary.create_database("followed"))
        with psycopg.connect(servers.standby.dsn(), autocommit=True) as standby:
            standby.execute("ALTER SYSTEM SET hot_standby_feedback = on")
            standby.execute("ALTER SYSTEM SET wal_receiver_status_interval = '1s'")
            standby.execute("SELECT pg_reload_conf()")
            with standby.transaction():
                standby.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                standby.execute("SELECT 1 FROM pg_class")
                async with Database(dsn, name="relay 1-00000000") as database, asyncio.timeout(30):
                    while not (await taken(database))["relay.vacuum.horizon", "", ""]:
                        await asyncio.sleep(0.05)


async def test_a_vacuum_holds_back_no_other_however_long_it_runs(
    connection: Connection, connections: list[Database], database: str
) -> None:
    await connection.execute("CREATE TABLE public.large AS SELECT repeat('x', 2000) FROM generate_series(1, 2000)")
    try:
        async with await type(connection).connect(database, autocommit=True) as other:
            await other.execute("SET vacuum_cost_delay = '100ms'")
            await other.execute("SET vacuum_cost_limit = 1")
            vacuum = asyncio.create_task(other.execute("VACUUM public.large"))
            while not await (await connection.execute(VACUUMING)).fetchone():
                await asyncio.sleep(0.02)
            gauges = await taken(connections[0])
            assert await (await connection.execute(VACUUMING)).fetchone(), "it ended too soon"
            other.cancel()
            await asyncio.wait([vacuum])
    finally:
        await connection.execute("DROP TABLE public.large")
    assert (gauges["relay.vacuum.held", "", ""], gauges["relay.vacuum.horizon", "", ""]) == (0, 0)


async def test_replicas_that_ask_at_the_same_time_read_the_sample_that_one_of_them_takes(
    connection: Connection, connections: list[Database]
) -> None:
    samplers = [sampler(each) for each in connections]
    for _ in range(5):
        await asyncio.gather(*(each.step() for each in samplers))
    cursor = await connection.execute("SELECT ctid::text FROM outbox.sample")
    assert await cursor.fetchall() == [("(0,1)",)], "the row was written more than once"
    assert samplers[0].gauges
    assert [each.gauges for each in samplers] == [samplers[0].gauges] * 3
    assert max(each.age_s for each in samplers) < 3600


async def test_before_the_first_sample_its_age_is_that_of_the_replica(connections: list[Database]) -> None:
    began_s = time.monotonic()
    assert 0 <= sampler(connections[0]).age_s <= time.monotonic() - began_s


async def test_a_sample_of_another_version_shows_what_this_one_knows_of_it(
    connection: Connection, connections: list[Database]
) -> None:
    await connection.execute(
        """INSERT INTO outbox.sample (taken_by, gauges)
           VALUES ('other', '[["relay.unheard.of", "a", "", 1], ["relay.jobs.unrouted", "", "", 7]]')"""
    )
    one = sampler(connections[0])
    await one.step()
    assert [(each.name, each.value) for each in one.gauges] == [("relay.unheard.of", 1), ("relay.jobs.unrouted", 7)]


async def test_the_database_takes_one_sample_an_interval_whoever_scrapes(
    nest: Nest, installation: Installation, web: Web, receiver: Receiver, connection: Connection
) -> None:
    installation.configure({"shop": {"url": receiver.url()}}, retention={"sweep_s": 1800})
    await installation.command("sync")
    log = nest.path / "postgres.log"
    before = log.stat().st_size
    [database] = await (await connection.execute("SELECT current_database()")).fetchone() or [""]
    await connection.execute(f"ALTER DATABASE {database} SET log_statement = 'all'".encode())
    try:
        await installation.start("one")
        await web.scraped(lambda s: "relay_backlog_due" in s.names)
        installation.environment["RELAY_WEB_PORT"] = str(free_port())
        await installation.start("two")
        other = Web(int(installation.environment["RELAY_WEB_PORT"]))
        await other.scraped(lambda s: "relay_backlog_due" in s.names)
        await asyncio.gather(*(each.scrape() for each in (web, other) for _ in range(25)))
    finally:
        await connection.execute(f"ALTER DATABASE {database} RESET log_statement".encode())
    executed = log.read_bytes()[before:]
    assert executed.count(first_line("sample")) == 2
    for statement in ("status", "sample_lanes", "unrouted", "vacuum", "sample_write"):
        assert executed.count(first_line(statement)) == 1, statement


def first_line(name: str) -> bytes:
    """What the server's log shows of a statement once for each time that it is executed."""
    return SQL[name].splitlines()[0]
