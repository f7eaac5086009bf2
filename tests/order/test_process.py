"""What happens to the process, its clock or its database: situations 7, 25, 26 and 27."""

import asyncio
import signal

import psycopg
import pytest
from aiohttp import web

from relay.demo.postgres import Postgres
from tests.order.lane import LAPSED
from tests.receiver import Arrival, Receiver, accept
from tests.service.replica import Installation
from tests.service.table import rows, until, value
from tests.store.jobs import Jobs

INSERT = (
    "INSERT INTO outbox.job (topic, destination, entity_key, payload)"
    " SELECT 't', 'shop', 'e' || n %% %s, '{}' FROM generate_series(1, %s) n"
)
DAY_S = 86_400


class Hold:
    """Accepts; the first attempts of these jobs only when they are let go."""

    def __init__(self, *sequences: int) -> None:
        self._held = {sequence: asyncio.Event() for sequence in sequences}

    def let_go(self, *sequences: int) -> None:
        """Answers these jobs now."""
        for sequence in sequences:
            self._held[sequence].set()

    async def __call__(self, arrival: Arrival) -> web.StreamResponse:
        if arrival.sequence in self._held and arrival.headers["Relay-Attempt"] == "1":
            await self._held[arrival.sequence].wait()
        return await accept(arrival)


async def never(_arrival: Arrival) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError("nobody sets it")


async def test_07_job_kills_its_worker_every_time(installation: Installation, jobs: Jobs, receiver: Receiver) -> None:
    """Fails when the attempt is counted at the result instead of the claim, or a reclaim ignores the budget."""
    installation.configure({"shop": {"url": receiver.url(), "retry": {"max_attempts": 2}}})
    receiver.answer = never
    killer, second = await jobs.add_many(2, "e", destination="shop")
    for attempt in (1, 2):
        replica = await installation.start()
        await receiver.wait_arrived(attempt)
        replica.signal(signal.SIGKILL)
        await replica.ended()
        await jobs.change(killer, LAPSED)
    receiver.answer = accept
    replica = await installation.start()
    await replica.event("job_reclaimed", job=killer, status="dead")
    other_lane = await jobs.add("other", destination="shop")
    await until(jobs.connection, "SELECT status = 'done' FROM outbox.job WHERE id = %s", other_lane)
    assert [arrival.headers["Relay-Attempt"] for arrival in receiver.arrivals] == ["1", "2", "1"]
    assert await jobs.statuses(killer, second) == ["dead", "blocked"]


async def test_25_graceful_stop_in_mid_send(installation: Installation, jobs: Jobs, receiver: Receiver) -> None:
    """Fails when a stop leaves a job to its lease, charges one that it cuts off, or starts a successor."""
    installation.configure({"shop": {"url": receiver.url()}})
    finished = await jobs.add_many(2, "finished", destination="shop")
    cut_off = await jobs.add_many(2, "cut off", destination="shop")
    receiver.answer = quick = Hold(finished[0], cut_off[0])
    replica = await installation.start()
    await receiver.wait_arrived(2)
    receiver.answer = accept
    replica.signal(signal.SIGTERM)
    await replica.event("stopping", at_once=False)
    quick.let_go(finished[0])
    await until(jobs.connection, "SELECT status = 'done' FROM outbox.job WHERE id = %s", finished[0])
    replica.signal(signal.SIGTERM)
    assert await replica.ended() == 0
    assert await jobs.statuses(*finished, *cut_off) == ["done", "pending", "pending", "blocked"]
    assert await rows(jobs.connection, "SELECT sum(attempts), sum(claims) FROM outbox.job") == [(1, 2)]


@pytest.fixture
def held(receiver: Receiver) -> Hold:
    """The first attempt of the first job gets no answer until it is let go."""
    receiver.answer = hold = Hold(1)
    return hold


async def test_26_kill_9(installation: Installation, jobs: Jobs, receiver: Receiver, held: Hold) -> None:
    """Fails when the head is taken back while its lease holds, or never."""
    installation.configure({"shop": {"url": receiver.url()}})
    head, second = await jobs.add_many(2, "e", destination="shop")
    killed = await installation.start("killed")
    await receiver.wait_arrived(1)
    killed.signal(signal.SIGKILL)
    await killed.ended()
    other = await installation.start("other")
    quiet = await jobs.add("quiet", destination="shop")
    await until(jobs.connection, "SELECT status = 'done' FROM outbox.job WHERE id = %s", quiet)
    # The lease still holds.
    assert await jobs.statuses(head, second) == ["running", "blocked"]
    await jobs.change(head, LAPSED)
    await other.event("job_reclaimed", job=head, status="pending")
    await until(jobs.connection, "SELECT count(*) = 3 FROM outbox.job WHERE status = 'done'")
    assert [arrival.sequence for arrival in receiver.arrivals] == [head, quiet, head, second]
    held.let_go(head)


async def test_26_sigstop_for_longer_than_a_lease(
    installation: Installation, jobs: Jobs, receiver: Receiver, held: Hold
) -> None:
    """Fails when a result is written without its claim's number: the sleeper's is late, and is counted as lost."""
    shop = {"shop": {"url": receiver.url()}}
    # Stopped in the middle of a sweep it would hold on to what it takes back, its own job.
    installation.configure(shop, retention={"sweep_s": 3600})
    sleeper = await installation.start("sleeper")
    installation.configure(shop)
    head, second = await jobs.add_many(2, "e", destination="shop")
    await receiver.wait_arrived(1)
    sleeper.signal(signal.SIGSTOP)
    held.let_go(head)
    await jobs.change(head, LAPSED)
    other = await installation.start("other")
    await other.event("job_reclaimed", job=head, status="pending")
    await until(jobs.connection, "SELECT count(*) = 2 FROM outbox.job WHERE status = 'done'")
    before = await jobs.row(head)
    sleeper.signal(signal.SIGCONT)
    await sleeper.event("lease_lost", job=head, claims=1)
    assert await sleeper.stop() == 0
    assert await jobs.row(head) == before
    assert [(arrival.sequence, arrival.headers["Relay-Attempt"]) for arrival in receiver.arrivals] == [
        (head, "1"),
        (head, "2"),
        (second, "1"),
    ]


async def test_26_clock_set_wrong_on_a_replica(
    astray: Installation, jobs: Jobs, receiver: Receiver, held: Hold
) -> None:
    """Fails when a due time or a lease is reckoned with the replica's clock."""
    astray.configure({"shop": {"url": receiver.url(), "retry": {"base_s": 0.05, "cap_s": 1}}})
    lane = await jobs.add_many(2, "e", destination="shop")
    later = await jobs.add("later", destination="shop")
    await jobs.change(later, "run_at = now() + interval '1 hour'")
    await astray.start()
    [arrival] = await receiver.wait_arrived(1)
    epoch_s = await value(jobs.connection, "SELECT extract(epoch FROM now())::float8")
    assert abs(int(arrival.headers["webhook-timestamp"]) - epoch_s - DAY_S) < DAY_S / 2
    lease = "SELECT locked_until BETWEEN now() AND now() + interval '90 s' FROM outbox.job WHERE id = %s"
    assert await value(jobs.connection, lease, lane[0])
    held.let_go(lane[0])
    await until(jobs.connection, "SELECT count(*) = 2 FROM outbox.job WHERE status = 'done'")
    assert [arrival.sequence for arrival in receiver.arrivals] == lane
    assert await jobs.statuses(later) == ["pending"]


async def test_27_database_restart(
    installation: Installation, database: str, receiver: Receiver, postgres: Postgres
) -> None:
    """Fails when a result that could not be written is forgotten."""
    lanes, count, slots = 4, 24, 4
    receiver.answer = hold = Hold(*range(1, slots + 1))
    installation.configure({"shop": {"url": receiver.url(), "max_in_flight": slots}})
    replicas = await installation.start_two()
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as producer:
        await producer.execute(INSERT, (lanes, count // 2))
        await receiver.wait_arrived(slots)
        # A commit that waits for the disk takes the claims before it along, which do not.
        await producer.execute(INSERT, (lanes, count // 2))
        await asyncio.to_thread(postgres.kill)
    hold.let_go(*range(1, slots + 1))
    for replica in replicas:
        await replica.event("database_away")
    await asyncio.to_thread(postgres.start)
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as witness:
        await until(witness, "SELECT count(*) = %s FROM outbox.job WHERE status = 'done'", count)
        assert await rows(witness, "SELECT count(*) FROM outbox.job") == [(count,)]
    for lane in range(lanes):
        delivered = [arrival.sequence for arrival in receiver.arrivals if arrival.sequence % lanes == lane]
        assert delivered == sorted(delivered)
        assert len(set(delivered)) == count // lanes
    assert len(receiver.arrivals) <= count + slots
    assert [await replica.stop() for replica in replicas] == [0, 0]
