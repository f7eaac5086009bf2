"""How a burst of one entity is put aside, with other work in it; the real claimer and the real store."""

import math
import time
from dataclasses import dataclass

from relay.database import Database
from relay.model import Settlement
from relay.search import WIDEST
from relay.store import Store
from tests.bench.rig import NAME, Rig
from tests.store.desk import Desk

SLOTS = 64
# Every so many jobs one of another entity.
EVERY = 500
_INSERT = b"""
INSERT INTO outbox.job (topic, destination, entity_key, payload)
SELECT 't', 'bench', CASE WHEN n %% %s = 0 THEN 'other-' || n ELSE 'hot' END, '{}' FROM generate_series(1, %s) n
"""
_LEFT = "SELECT count(*) FROM outbox.job WHERE status = 'pending'"


@dataclass(frozen=True)
class Burst:
    """`rounds` claims until nothing of the burst was due any more."""

    jobs: int
    rounds: int
    bound: int
    us_per_job: float
    others: int


async def _deliver_others(desk: Desk, store: Store) -> int:
    """Settles what is not of the burst, which frees its slots; how many."""
    others = [job for job in desk.jobs if job.entity_key != "hot"]
    desk.jobs.clear()
    if others:
        await store.settle([Settlement(job, "done", chain=True) for job in others])
    desk.free += len(others)
    return len(others)


async def put_aside(rig: Rig, jobs: int) -> Burst:
    """Inserts `jobs` in one transaction and claims until all others are delivered and the burst is put aside."""
    rounds, others, spent_s = 0, 0, 0.0
    with rig.connect() as connection:
        rig.empty(connection)
        connection.execute(_INSERT, (EVERY, jobs))
        async with Database(rig.dsn, name="burst") as database:
            store = Store(database, locked_by="burst", lease_s=600.0)
            desk = Desk(store, NAME, free=SLOTS)
            while rig.row(connection, _LEFT) != (0,):
                started_s = time.monotonic()
                await desk.claimer.step()
                spent_s += time.monotonic() - started_s
                rounds += 1
                others += await _deliver_others(desk, store)
    bound = math.ceil(math.log2(WIDEST / SLOTS) + jobs / WIDEST)
    return Burst(jobs, rounds, bound, 1e6 * spent_s / jobs, others)
