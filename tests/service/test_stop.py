"""SIGTERM once, twice, and with a receiver that does not answer."""

import asyncio
import signal
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web

from tests.conftest import Connection
from tests.receiver import Arrival, Receiver
from tests.service.replica import Installation, Replica
from tests.service.table import counts, rows

SLOTS = 8

Busy = Callable[..., Awaitable[Replica]]


@pytest.fixture
def answering(receiver: Receiver) -> asyncio.Event:
    """Until it is set the receiver answers nothing."""
    answering = asyncio.Event()

    async def hold(_arrival: Arrival) -> web.StreamResponse:
        await answering.wait()
        return web.Response(status=204)

    receiver.answer = hold
    return answering


@pytest.fixture
def busy(installation: Installation, connection: Connection, receiver: Receiver, answering: asyncio.Event) -> Busy:
    """A replica with all slots in flight at a receiver that waits for `answering`, and jobs behind them."""
    assert not answering.is_set()

    async def start(**settings: object) -> Replica:
        installation.configure({"shop": {"url": receiver.url(), "max_in_flight": SLOTS, **settings}})
        replica = await installation.start()
        await connection.execute(
            "INSERT INTO outbox.job (topic, destination, entity_key, payload)"
            " SELECT 't', 'shop', 'entity-' || n %% 20, '{}' FROM generate_series(1, 40) n",
            (),
        )
        await receiver.wait_arrived(SLOTS)
        return replica

    return start


async def test_sigterm_finishes_what_is_in_flight_starts_nothing_and_leaves_no_running_row(
    busy: Busy, connection: Connection, receiver: Receiver, answering: asyncio.Event
) -> None:
    replica = await busy()
    replica.signal(signal.SIGTERM)
    await replica.event("stopping", signal="SIGTERM", at_once=False)
    answering.set()
    assert await replica.ended() == 0
    assert replica.logged("replica_stopped")
    assert len(receiver.arrivals) == SLOTS
    found = await counts(connection)
    assert found.pop("done") == SLOTS
    assert found.keys() <= {"pending", "blocked"}
    # What was claimed ahead is given back uncharged.
    unsent = await rows(connection, "SELECT DISTINCT attempts, locked_by FROM outbox.job WHERE status <> 'done'")
    assert unsent == [(0, None)]


async def test_a_second_sigterm_cuts_off_at_once_and_charges_nothing(
    busy: Busy, connection: Connection, receiver: Receiver
) -> None:
    replica = await busy()
    replica.signal(signal.SIGTERM)
    await replica.event("stopping", at_once=False)
    replica.signal(signal.SIGTERM)
    await replica.event("stopping", at_once=True)
    # Long before the deadline of what hangs: nothing failed.
    assert await replica.ended() == 0
    assert await rows(connection, "SELECT * FROM outbox.attempt") == []
    assert (await counts(connection)).keys() <= {"pending", "blocked"}
    sent = [arrival.sequence for arrival in receiver.arrivals]
    given_back = "SELECT DISTINCT attempts, claims, status FROM outbox.job WHERE id = ANY (%s)"
    assert await rows(connection, given_back, sent) == [(0, 1, "pending")]
    assert await rows(connection, "SELECT DISTINCT attempts FROM outbox.job") == [(0,)]


async def test_sigterm_waits_for_a_receiver_that_never_answers_no_longer_than_its_deadline(
    busy: Busy, connection: Connection, receiver: Receiver
) -> None:
    replica = await busy(deadline_s=1, retry={"base_s": 60, "cap_s": 60})
    replica.signal(signal.SIGTERM)
    assert await replica.ended() == 0
    assert not replica.logged("drain_cut_off")
    assert (await counts(connection)).keys() <= {"pending", "blocked"}
    failed = await rows(connection, "SELECT error_class, count(*) FROM outbox.attempt GROUP BY 1")
    assert failed == [("deadline", len(receiver.arrivals))]


async def test_sigint_stops_like_sigterm(busy: Busy, connection: Connection, answering: asyncio.Event) -> None:
    replica = await busy()
    replica.signal(signal.SIGINT)
    await replica.event("stopping", signal="SIGINT")
    answering.set()
    assert await replica.ended() == 0
    assert (await counts(connection))["done"] == SLOTS
