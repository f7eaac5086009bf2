"""How long an entity's job waits while others are busy or stuck, and how fast one busy entity is. A real relay."""

import asyncio
import statistics
import time
from dataclasses import dataclass

import psycopg

from relay.database import Database
from relay.dispatch import CHAIN_LIMIT
from relay.model import Settlement
from relay.rows import Range
from relay.store import Store
from tests.bench.bare import with_sender
from tests.bench.rig import NAME, Rig

HOT_SLOTS = 8
HELD_FOLLOWERS = 500
_PROBE_EVERY_S = 0.02
_INSERT = b"""
INSERT INTO outbox.job (topic, destination, entity_key, payload)
SELECT 't', 'bench', %s, '{}' FROM generate_series(1, %s)
"""
# Not due yet, so that it can be locked before anybody claims it.
_HELD_HEAD = b"""
INSERT INTO outbox.job (topic, destination, entity_key, payload, run_at)
VALUES ('t', 'bench', 'held', '{}', now() + interval '1 s')
"""
_WAITED = b"""
SELECT extract(epoch FROM finished_at - created_at)::float8 * 1000
  FROM outbox.job WHERE entity_key LIKE 'fresh-%' ORDER BY id
"""
# How many deliveries were written between a job's insert and its own.
_BEFORE = b"""
SELECT (SELECT count(*) FROM outbox.job o
         WHERE o.finished_at > f.created_at AND o.finished_at < f.finished_at)
  FROM outbox.job f WHERE f.entity_key LIKE 'fresh-%' ORDER BY f.id
"""


@dataclass(frozen=True)
class Waits:
    """Milliseconds that fresh entities' jobs waited, and how many deliveries were written meanwhile."""

    ms: list[float]
    deliveries: list[int]

    @property
    def median_ms(self) -> float:
        return statistics.median(self.ms)

    @property
    def p95_ms(self) -> float:
        return statistics.quantiles(self.ms, n=20)[-1]


def _probe(rig: Rig, connection: psycopg.Connection, probes: int) -> None:
    for n in range(probes):
        connection.execute(_INSERT, (f"fresh-{n}", 1))
        time.sleep(_PROBE_EVERY_S)
    left = "SELECT count(*) FROM outbox.job WHERE entity_key LIKE 'fresh-%' AND status <> 'done'"
    while rig.row(connection, left) != (0,):
        time.sleep(0.02)


def _waits(connection: psycopg.Connection) -> Waits:
    ms = [row[0] for row in connection.execute(_WAITED).fetchall()]
    before = [row[0] for row in connection.execute(_BEFORE).fetchall()]
    return Waits(ms, before)


def beside_a_held_lane(rig: Rig, seconds: float, *, held: bool) -> Waits:
    """Fresh entities' waits while somebody holds the head of a lane with followers, or nobody does."""
    with rig.receiver(0) as url, rig.connect() as connection:
        rig.empty(connection)
        with rig.relay(url, slots=64), psycopg.connect(rig.dsn) as foreign:
            if held:
                connection.execute(_HELD_HEAD)
                foreign.execute(b"SELECT FROM outbox.job WHERE entity_key = 'held' FOR UPDATE")
                connection.execute(_INSERT, ("held", HELD_FOLLOWERS))
                running = rig.row(
                    connection, "SELECT count(*) FROM outbox.job WHERE entity_key = 'held' AND claims > 0"
                )
                assert running == (0,), "the lane went on before it could be held"
            _probe(rig, connection, int(seconds / _PROBE_EVERY_S))
            waits = _waits(connection)
            foreign.rollback()
            rig.drained(connection)
    return waits


def beside_hot_lanes(rig: Rig, probes: int, *, lanes: int) -> Waits:
    """Fresh entities' waits while so many lanes never run out of jobs, on HOT_SLOTS slots."""
    with rig.receiver(5) as url, rig.connect() as connection:
        rig.empty(connection)
        for n in range(lanes):
            connection.execute(_INSERT, (f"hot-{n}", 30 * probes))
        with rig.relay(url, slots=HOT_SLOTS):
            # Not the bursts themselves are meant, but lanes that always have a next job.
            aside = "SELECT count(*) <= %s FROM outbox.job WHERE status = 'pending'"
            while rig.row(connection, aside, lanes) == (False,):
                time.sleep(0.02)
            _probe(rig, connection, probes)
            busy = "SELECT count(DISTINCT entity_key) FROM outbox.job WHERE status <> 'done'"
            assert rig.row(connection, busy) == (lanes,), "a hot lane ran out of jobs"
            return _waits(connection)


# A lane that has chained so often goes to the end of the queue. All slots may just have begun their chains, and a
# slot's worth may have been claimed ahead.
DELIVERIES_BOUND = HOT_SLOTS * (CHAIN_LIMIT + 1) + HOT_SLOTS


@dataclass(frozen=True)
class Hot:
    """One entity: jobs a second, and what they could be at best, from the times measured in the same run."""

    delay_ms: float
    jobs_per_s: float
    http_ms: float
    settle_ms: float

    @property
    def bound_per_s(self) -> float:
        return 1000 / (self.http_ms + self.settle_ms)


async def _settle_ms(rig: Rig, connection: psycopg.Connection, jobs: int) -> float:
    """The median of one settle that starts the lane's next job."""
    rig.empty(connection)
    connection.execute(_INSERT, ("hot", jobs + 1))
    took = []
    async with Database(rig.dsn, name="hot") as database:
        store = Store(database, locked_by="hot", lease_s=600.0)
        [job] = (await store.claim([Range(NAME, 1, 1, 4096)], payload_bytes=1 << 30)).jobs
        for _ in range(jobs):
            started_s = time.monotonic()
            [job] = (await store.settle([Settlement(job, "done", chain=True)])).started
            took.append(1000 * (time.monotonic() - started_s))
    return statistics.median(took)


def one_hot_entity(rig: Rig, delay_ms: float, jobs: int) -> Hot:
    """Delivers `jobs` of one entity, after measuring the two halves of each."""
    with rig.receiver(delay_ms) as url, rig.connect() as connection:
        started_s = time.monotonic()
        asyncio.run(with_sender(url, jobs, 1, b"{}"))
        http_ms = 1000 * (time.monotonic() - started_s) / jobs
        settle_ms = asyncio.run(_settle_ms(rig, connection, min(jobs, 300)))
        rig.empty(connection)
        connection.execute(_INSERT, ("hot", jobs))
        with rig.relay(url, slots=64):
            rig.drained(connection)
        took = "SELECT extract(epoch FROM max(finished_at) - min(finished_at))::float8 FROM outbox.job"
        [took_s] = rig.row(connection, took)
    return Hot(delay_ms, (jobs - 1) / took_s, http_ms, settle_ms)
