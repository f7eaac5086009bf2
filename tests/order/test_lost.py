"""A connection that is lost during a COMMIT, whose outcome nobody knows then: situation 28."""

from collections.abc import AsyncIterator, Sequence
from typing import get_args

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from relay.database import UNAVAILABLE, Database
from relay.model import Settlement
from relay.rows import Settled
from relay.settle import Settler
from relay.store import Store
from tests.order.lane import LAPSED, deliver, redrive
from tests.order.proxy import Loss, Proxy
from tests.store.jobs import LEASE_S, Jobs, claim, dead, done, retry, webhook

either = pytest.mark.parametrize("lost", get_args(Loss))


@pytest.fixture
async def proxy(database: str) -> AsyncIterator[Proxy]:
    """The road that `store` takes; `other` goes straight."""
    async with Proxy(int(str(conninfo_to_dict(database)["port"]))) as proxy:
        yield proxy


@pytest.fixture
async def store(database: str, proxy: Proxy, _roles: None) -> AsyncIterator[Store]:
    """A replica whose connections can be lost."""
    dsn = make_conninfo(database, user="relay_order", port=proxy.port)
    async with Database(dsn, name="first", pool_size=2) as connections:
        yield Store(connections, locked_by="first", lease_s=LEASE_S)


class Desk:
    """A settler, and what it has handed on."""

    def __init__(self, store: Store) -> None:
        self.ids: list[int] = []
        self.started: list[int] = []
        self.settler = Settler(store, on_settled=self._on_settled, wake=lambda: None)

    def _on_settled(self, _batch: Sequence[Settlement], settled: Settled, _since_s: float) -> None:
        self.ids += settled.ids
        self.started += [job.id for job in settled.started]

    async def write(self, settlement: Settlement) -> None:
        """Puts one outcome, and writes it as often as it takes."""
        self.settler.put(settlement)
        with pytest.raises(UNAVAILABLE):
            await self.settler.step()
        assert not self.settler.empty
        await self.settler.step()
        assert self.settler.empty


@either
async def test_28_connection_lost_during_the_commit_of_a_settle(
    store: Store, other: Store, jobs: Jobs, proxy: Proxy, lost: Loss
) -> None:
    """Fails when the settler forgets an outcome it could not write, or one that was written is written again."""
    head, second = await jobs.add_many(2, "e")
    [running] = await claim(store)
    proxy.lose = lost
    desk = Desk(store)
    await desk.write(done(running, chain=True))
    assert (proxy.lost, desk.ids, desk.started) == ((1, [head], [second]) if lost == "question" else (1, [], []))
    # Started once, by the settle that reached the database, whether or not its answer came back.
    assert await jobs.statuses(head, second) == ["done", "running"]
    assert (await jobs.row(second))["claims"] == 1
    assert await claim(other) == []
    await jobs.change(second, LAPSED)
    await other.reclaim([webhook()], limit=10)
    assert await deliver(other) == [second]


async def test_28_outcome_that_was_written_meets_a_newer_claim(
    store: Store, other: Store, jobs: Jobs, proxy: Proxy
) -> None:
    """Fails when a settle that is repeated does not ask whose claim it is."""
    head, second = await jobs.add_many(2, "e")
    [running] = await claim(store)
    proxy.lose = "answer"
    settlement = retry(running, 0.0)
    with pytest.raises(UNAVAILABLE):
        await store.settle([settlement])
    [again] = await claim(other)
    assert (await store.settle([settlement])).ids == frozenset()
    assert (await jobs.row(head))["locked_by"] == "second"
    assert await jobs.count("running") == 1
    assert await jobs.value("SELECT count(*) FROM outbox.attempt") == 1
    assert [job.id for job in (await other.settle([done(again, chain=True)])).started] == [second]


@either
async def test_28_connection_lost_during_the_commit_of_a_claim(
    store: Store, other: Store, jobs: Jobs, proxy: Proxy, lost: Loss
) -> None:
    """Fails when a job whose claim nobody knows of is never taken back."""
    ids = await jobs.add_many(2, "e")
    proxy.lose = lost
    with pytest.raises(UNAVAILABLE):
        await claim(store)
    assert await jobs.statuses(*ids) == (["running", "blocked"] if lost != "question" else ["pending", "pending"])
    if lost != "question":
        assert await claim(other) == []
        await jobs.change(ids[0], LAPSED)
        assert [job.id for job in await other.reclaim([webhook()], limit=10)] == ids[:1]
    assert await deliver(other) == ids
    assert (await jobs.row(ids[0]))["attempts"] == (2 if lost != "question" else 1)


@either
async def test_28_connection_lost_during_the_commit_of_a_reclaim(
    store: Store, other: Store, jobs: Jobs, proxy: Proxy, lost: Loss
) -> None:
    """Fails when a reclaim that nobody knows of is done twice, or leaves the lane without its next job."""
    ids = await jobs.add_many(2, "e")
    await claim(other)
    await jobs.change(ids[0], LAPSED)
    proxy.lose = lost
    # Its budget is spent, so it is the reclaim that goes on with the lane.
    skipping = [webhook(on_dead="skip", max_attempts=1)]
    with pytest.raises(UNAVAILABLE):
        await store.reclaim(skipping, limit=10)
    assert await jobs.statuses(*ids) == (["running", "blocked"] if lost == "question" else ["dead", "pending"])
    again = await store.reclaim(skipping, limit=10)
    assert [job.id for job in again] == (ids[:1] if lost == "question" else [])
    assert await jobs.value("SELECT count(*) FROM outbox.attempt") == 1
    assert await deliver(other) == ids[1:]


@either
async def test_28_connection_lost_during_the_commit_of_a_redrive(
    other: Store, jobs: Jobs, proxy: Proxy, lost: Loss, database: str
) -> None:
    """Fails when a person who asks again, not knowing, sends a job twice or out of turn."""
    ids = await jobs.add_many(2, "e")
    [running] = await claim(other)
    await other.settle([dead(running, blocks=True)])
    async with Database(make_conninfo(database, port=proxy.port), name="desk", pool_size=2) as desk:
        # The database's time, and the jobs as they are, come first.
        proxy.lose, proxy.spared = lost, 2
        with pytest.raises(UNAVAILABLE):
            await redrive(desk, ids[0])
        assert await jobs.statuses(*ids) == ["dead" if lost == "question" else "pending", "blocked"]
        assert (await redrive(desk, ids[0])).changed == (1 if lost == "question" else 0)
    assert await jobs.value("SELECT count(*) FROM outbox.operation") == 1
    assert await deliver(other) == ids
