"""Faults of the network between the relay and PostgreSQL, and between the relay and its receivers."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from relay.demo.nest import Nest
from relay.demo.postgres import Postgres
from tests.chaos.fleet import LEASE_S
from tests.conftest import MAJOR
from tests.faults.conftest import Report
from tests.faults.proxy import Proxy
from tests.faults.wire import Wire
from tests.faults.world import DATABASE_BACK_S, REPLICAS, World, world
from tests.order.proxy import Loss
from tests.order.proxy import Proxy as Commits

pytestmark = pytest.mark.timeout(300)

Fault = Callable[[Wire], AbstractContextManager[None]]
LONGER_THAN_A_LEASE_S = LEASE_S + 3
FAULTS: list[tuple[str, float, Fault]] = [
    ("dropped", 3.0, Wire.drops),
    ("partition_longer_than_a_lease", LONGER_THAN_A_LEASE_S, Wire.drops),
    ("answers_dropped", LONGER_THAN_A_LEASE_S, lambda wire: wire.drops(ways=("back",))),
    ("reset", 3.0, Wire.resets),
    ("loss_of_30_percent", 8.0, lambda wire: wire.drops(share=0.3)),
    ("slow_link", 8.0, lambda wire: wire.slow("512kbit")),
]


def faults(quick: str) -> pytest.MarkDecorator:
    """Each fault in turn, that of this name in the short form too."""
    marks = {quick: pytest.mark.quick}
    params = [pytest.param(lasts_s, fault, id=name, marks=marks.get(name, ())) for name, lasts_s, fault in FAULTS]
    return pytest.mark.parametrize(("lasts_s", "fault"), params)


# The breaker's longest pause after an outage of this length, and one more probe that may hang for its deadline.
RECEIVER_BACK_S = 2 * LONGER_THAN_A_LEASE_S

BEFORE_TRANSACTION_TIMEOUT = {"14", "15", "16"}


async def survives(
    fault: AbstractContextManager[None], lasts_s: float, running: World, report: Report, within_s: float
) -> None:
    """Jobs flow again within so long after the fault, and nothing is lost by it."""
    await running.flows()
    with fault:
        await asyncio.sleep(lasts_s)
    recovery_s = await running.recovers(within_s=within_s)
    report(await running.judged(), recovery_s, within_s)


@faults(quick="partition_longer_than_a_lease")
async def test_nothing_is_lost_between_the_relay_and_postgresql(
    lasts_s: float, fault: Fault, running: World, report: Report
) -> None:
    await survives(fault(Wire("127.0.0.2", running.server.port)), lasts_s, running, report, DATABASE_BACK_S)


@faults(quick="reset")
async def test_nothing_is_lost_between_the_relay_and_its_receivers(
    lasts_s: float, fault: Fault, running: World, report: Report
) -> None:
    await survives(fault(Wire("127.0.0.1", running.receiver.port)), lasts_s, running, report, RECEIVER_BACK_S)


async def test_nothing_is_lost_when_connections_to_postgresql_stay_open_and_go_silent(
    nest: Nest, server: Postgres, report: Report
) -> None:
    dsn = server.create_database("faults")
    async with Proxy(server.port) as proxy, world(nest, server, dsn, port=proxy.port) as running:
        await running.flows()
        proxy.silence()
        assert proxy.silenced >= len(REPLICAS)
        recovery_s = await running.recovers(within_s=DATABASE_BACK_S)
        if MAJOR in BEFORE_TRANSACTION_TIMEOUT:
            # What a silent session had locked stays locked until the road ends it, as roads do.
            proxy.cut()
        report(await running.judged(), recovery_s, DATABASE_BACK_S)


async def test_nothing_is_lost_when_connections_to_receivers_stay_open_and_go_silent(
    nest: Nest, server: Postgres, report: Report
) -> None:
    dsn = server.create_database("faults")
    async with Proxy(to=0) as proxy, world(nest, server, dsn, receivers=proxy) as running:
        for _ in range(5):
            await running.flows(20)
            proxy.silence()
        assert proxy.silenced >= 5 * len(REPLICAS)
        recovery_s = await running.recovers(within_s=RECEIVER_BACK_S)
        report(await running.judged(), recovery_s, RECEIVER_BACK_S)


@pytest.mark.parametrize("lost", ["question", pytest.param("answer", marks=pytest.mark.quick), "certainty"])
async def test_nothing_is_lost_when_commits_of_the_relay_are_lost_again_and_again(
    lost: Loss, nest: Nest, server: Postgres, report: Report
) -> None:
    dsn = server.create_database("faults")
    async with Commits(server.port) as proxy, world(nest, server, dsn, port=proxy.port) as running:
        for _ in range(30):
            await running.flows(10)
            proxy.lose = lost
        proxy.lose = None
        assert proxy.lost >= 20
        recovery_s = await running.recovers(within_s=DATABASE_BACK_S)
        report(await running.judged(), recovery_s, DATABASE_BACK_S)
