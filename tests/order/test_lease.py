"""A result or a call that comes too late: situations 5 and 6."""

import random
from collections.abc import Awaitable, Callable

import pytest

from relay.database import Database
from relay.deliver import Deliverer
from relay.model import Destination
from relay.sender import Sender
from relay.store import Store
from tests.order.lane import LAPSED, deliver, redrive
from tests.receiver import Receiver
from tests.store.jobs import Jobs, claim, dead, done, retry, webhook


@pytest.mark.parametrize("itself", [False, True], ids=["another claims it", "the same claims it"])
async def test_05_lease_lapses_while_the_call_is_in_flight(
    store: Store, other: Store, jobs: Jobs, *, itself: bool
) -> None:
    """Fails when a settle does not ask for its own claim's number, or a reclaim goes on with the successor."""
    next_one = store if itself else other
    head, second = await jobs.add_many(2, "e")
    [old] = await claim(store)
    await jobs.change(head, LAPSED)
    assert [job.status for job in await other.reclaim([webhook()], limit=10)] == ["pending"]
    # Nobody's now, under the number it had.
    assert (await store.settle([done(old)])).ids == frozenset()
    [again] = await claim(next_one)
    assert (again.id, again.idempotency_key, again.attempts) == (head, old.idempotency_key, 2)
    before = await jobs.row(head)
    for late in (done(old, chain=True), retry(old, 0.0, chain=True), dead(old, blocks=False, chain=True)):
        settled = await store.settle([late])
        # What is missing from the ids is what the replica counts as lost.
        assert (settled.ids, settled.started, settled.due) == (frozenset(), [], [])
    assert await jobs.row(head) == before
    assert await jobs.statuses(second) == ["blocked"]
    assert [job.id for job in (await next_one.settle([done(again, chain=True)])).started] == [second]


async def test_06_old_call_lands_after_the_successor_was_delivered(
    store: Store, other: Store, jobs: Jobs, receiver: Receiver, open_database: Callable[..., Awaitable[Database]]
) -> None:
    """Fails when a call does not carry its job's key, id and attempt, or a forced redrive its mark."""
    destination = Destination("a", receiver.url())
    head, second = await jobs.add_many(2, "e")
    async with Sender() as sender:
        deliverer = Deliverer(sender.send, random.Random(1))
        [old] = await claim(store)
        await jobs.change(head, LAPSED)
        await other.reclaim([webhook()], limit=10)
        [again] = await claim(other)
        await deliverer.deliver(again, destination)
        [successor] = (await other.settle([dead(again, blocks=False, chain=True)])).started
        await deliverer.deliver(successor, destination)
        await other.settle([done(successor)])
        # The old replica's call was on its way all the time.
        await deliverer.deliver(old, destination)
        await redrive(await open_database(), head, force=True)
        [redriven] = await claim(other)
        await deliverer.deliver(redriven, destination)
    names = ("Relay-Sequence", "Relay-Attempt", "Relay-Redrive")
    assert [tuple(arrival.headers.get(name) for name in names) for arrival in receiver.arrivals] == [
        (str(head), "2", None),
        (str(second), "1", None),
        (str(head), "1", None),
        (str(head), "1", "true"),
    ]
    keys = [arrival.key for arrival in receiver.arrivals]
    assert [key == keys[0] for key in keys] == [True, False, True, True]
    assert await deliver(other) == []
