"""Many replicas, random outcomes, forgotten jobs and late results; the table's own log is the judge."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace

import psycopg
import pytest

from relay.database import CONFLICTS
from relay.model import Job, Settlement
from relay.store import Store
from tests.conftest import Connection
from tests.store.jobs import Jobs, claim, dead, done, release, retry, webhook

LANES = 7
COUNT = 500
FINAL = {"done", "dead"}

# Written in the transaction of each change, so its order within a lane is the order that counts.
LOG = """
CREATE UNLOGGED TABLE public.change (
    place bigint GENERATED ALWAYS AS IDENTITY, id bigint, entity_key text, old text, new text);
CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO public.change (id, entity_key, old, new) VALUES (NEW.id, NEW.entity_key, OLD.status, NEW.status);
    RETURN NULL;
END $$;
CREATE TRIGGER note AFTER UPDATE ON outbox.job FOR EACH ROW
    WHEN (OLD.status <> NEW.status) EXECUTE FUNCTION public.note();
"""


@pytest.fixture
async def log(connection: Connection) -> AsyncIterator[None]:
    """Every change of a status, in order."""
    await connection.execute(LOG.encode())
    yield
    await connection.execute("DROP TRIGGER note ON outbox.job")
    await connection.execute("DROP FUNCTION public.note; DROP TABLE public.change")


@dataclass
class Run:
    """What the workers of one run share."""

    jobs: Jobs
    rng: random.Random
    produced: bool = False
    late: int = 0

    async def over(self) -> bool:
        """Whether every job is final."""
        return self.produced and not await self.jobs.value(
            "SELECT count(*) FROM outbox.job WHERE status NOT IN ('done', 'dead')"
        )

    async def produce(self, connection: Connection, count: int) -> None:
        """Inserts jobs of random lanes, some of them in one transaction, some rolled back."""
        while count > 0:
            async with connection.transaction() as transaction:
                for _ in range(self.rng.randint(1, 6)):
                    lane = self.rng.choice([None, *(f"e{n}" for n in range(LANES))])
                    await connection.execute(
                        "INSERT INTO outbox.job (destination, topic, entity_key, payload, priority)"
                        " VALUES ('a', 't', %s, '{}', %s)",
                        [lane, self.rng.randint(0, 3)],
                    )
                    count -= 1
                if self.rng.random() < 0.1:
                    raise psycopg.Rollback(transaction)

    async def work(self, store: Store) -> None:
        """Claims and settles until everything is final; a lane goes on by chains and by claims."""
        running: list[Job] = []
        while running or not await self.over():
            try:
                free, width = self.rng.randint(1, 12), self.rng.randint(1, 20)
                running += await claim(store, free=free, width=width)
            except CONFLICTS:
                continue
            batch = [self.outcome(job) for job in running]
            forgotten = [s for s in batch if self.rng.random() < 0.05]
            for settlement in forgotten:
                await self.lapse(settlement.job)
            running = await self.settle(store, [s for s in batch if s not in forgotten])
            self.late += len(forgotten) - len((await store.settle([replace(s, chain=False) for s in forgotten])).ids)

    def outcome(self, job: Job) -> Settlement:
        """What became of one attempt."""
        chance = self.rng.random()
        if chance < 0.15:
            return retry(job, 0.0, chain=True)
        if chance < 0.25:
            return dead(job, blocks=False, chain=self.rng.random() < 0.5)
        if chance < 0.35:
            return release(job)
        return done(job, chain=chance < 0.7)

    async def settle(self, store: Store, batch: list[Settlement]) -> list[Job]:
        """Writes a batch; on a conflict again, without the chains."""
        try:
            return (await store.settle(batch)).started
        except CONFLICTS:
            return await self.settle(store, [replace(s, chain=False) for s in batch])

    async def lapse(self, job: Job) -> None:
        """The lease ends before the result is written."""
        await self.jobs.connection.execute(
            "UPDATE outbox.job SET locked_until = now() - interval '1 s'"
            " WHERE id = %s AND claims = %s AND status = 'running'",
            [job.id, job.claims],
        )

    async def sweep(self, store: Store) -> None:
        """Takes back what was forgotten."""
        while not await self.over():
            await store.reclaim([webhook(max_attempts=1000)], limit=10)


async def changes(connection: Connection) -> list[tuple[int, str | None, str, str]]:
    """The log, in order."""
    found = await connection.execute("SELECT id, entity_key, old, new FROM public.change ORDER BY place")
    return await found.fetchall()


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize("role", ["plain", "repeatable_read"], indirect=True)
@pytest.mark.parametrize("producers", [1, 3])
@pytest.mark.parametrize("seed", [1, 2])
async def test_every_job_of_a_mixed_run_ends_in_order_one_at_a_time_and_no_lane_is_stranded(
    replica: Callable[..., Awaitable[Store]], jobs: Jobs, database: str, seed: int, producers: int
) -> None:
    run = Run(jobs, random.Random(seed))
    stores = [await replica(f"r{n}") for n in range(4)]

    async def produce() -> None:
        async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
            await run.produce(connection, COUNT // producers)

    async def produce_all() -> None:
        await asyncio.gather(*(produce() for _ in range(producers)))
        run.produced = True

    async with asyncio.timeout(60):
        await asyncio.gather(produce_all(), run.sweep(await replica("sweeper")), *(run.work(store) for store in stores))

    assert await jobs.stranded() == []
    ended: set[int] = set()
    running: dict[str, int] = {}
    order: dict[str, list[int]] = {}
    for id_, entity_key, old, new in await changes(jobs.connection):
        assert id_ not in ended, f"job {id_} went from {old} to {new} after it had ended"
        if new in FINAL:
            ended.add(id_)
        if entity_key is None:
            continue
        if old == "running":
            assert running.pop(entity_key) == id_
        if new == "running":
            assert entity_key not in running, f"job {id_} started beside {running[entity_key]}"
            running[entity_key] = id_
            if id_ not in order.setdefault(entity_key, []):
                order[entity_key].append(id_)
    assert len(ended) == await jobs.value("SELECT count(*) FROM outbox.job") > COUNT // 2
    assert len(order) == LANES
    if producers == 1:
        assert all(ids == sorted(ids) for ids in order.values())
    # The run would prove little if no result had come late.
    assert run.late > 0
