"""Payloads of 1 MiB in every slot, and what a limit on memory leaves of a replica."""

import asyncio

import pytest
from aiohttp import web

from tests.faults.bench import BACK_S, Bench, killed_above, resident_kib
from tests.faults.conftest import Report
from tests.receiver import Arrival
from tests.schema.rows import value

pytestmark = pytest.mark.timeout(180)

MIB = 1_048_576
JOBS, KILLS = 150, 3
BUDGET_MIB = 16
# What a process needs and its budget (docs/performance.md), with room for twice the budget.
LIMIT_KIB = (80 + 3 * BUDGET_MIB) * 1024


async def slow(_: Arrival) -> web.StreamResponse:
    """Accepts after a moment, so that many requests are out at once."""
    await asyncio.sleep(0.3)
    return web.Response(status=204)


@pytest.mark.quick
async def test_payloads_of_1_mib_in_every_slot_stay_within_the_budget_of_bytes(bench: Bench, report: Report) -> None:
    bench.receiver.answer = slow
    bench.replica = {"payload_budget_bytes": BUDGET_MIB * MIB}
    await bench.insert(JOBS, payload_bytes=MIB - 2)
    process = bench.start()
    await bench.all_done(process)
    recovery_s = await bench.recovers()
    assert resident_kib(process, most=True) < LIMIT_KIB
    assert await bench.ends(process) == 0
    report(await bench.judged(), recovery_s, BACK_S)


async def test_a_replica_killed_at_its_memory_limit_again_and_again_costs_an_attempt_each_and_no_job(
    bench: Bench, report: Report
) -> None:
    bench.receiver.answer = slow
    await bench.insert(JOBS, payload_bytes=MIB - 2)
    for _ in range(KILLS):
        # The usual budget is 256 MiB, more than the limit leaves room for.
        await killed_above(bench.start(name="small"), LIMIT_KIB)
    assert await value(bench.connection, "SELECT count(*) FROM outbox.job WHERE status = 'running'") > 0
    bench.replica = {"payload_budget_bytes": BUDGET_MIB * MIB}
    process = bench.start(name="budgeted")
    recovery_s = await bench.recovers()
    await bench.all_done(process)
    # The same limit is enough for one whose budget fits into it.
    assert resident_kib(process, most=True) < LIMIT_KIB
    assert await value(bench.connection, "SELECT max(attempts) FROM outbox.job") <= KILLS + 1
    assert await bench.ends(process) == 0
    report(await bench.judged(), recovery_s, BACK_S)
