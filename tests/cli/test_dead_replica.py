"""Redriven jobs as a receiver sees them, sent by a real replica."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from aiohttp import web

from relay.bulk import Selection
from relay.database import Database
from relay.dead import Letters
from relay.demo.nest import Nest
from tests.cli.conftest import Connection, Put, rows, until
from tests.receiver import Arrival, Receiver
from tests.service.replica import Installation


@pytest_asyncio.fixture
async def installation(nest: Nest, tmp_path: Path, database: str, receiver: Receiver) -> AsyncIterator[Installation]:
    """Two destinations at one receiver, where a 400 is final; what a bug would log fails the test."""
    installation = Installation(nest, tmp_path, database)
    final = {"permanent_statuses": [400], "max_in_flight": 4}
    installation.configure(
        {
            "billing": {"url": receiver.url("/billing"), **final},
            "search": {"url": receiver.url("/search"), "on_dead": "skip", **final},
        }
    )
    yield installation
    await installation.close()


def refuse(*sequences: int) -> object:
    """Answers 400 to the first attempt of these jobs, and 204 to all else."""
    left = set(sequences)

    async def answer(arrival: Arrival) -> web.StreamResponse:
        first = arrival.sequence in left
        left.discard(arrival.sequence)
        return web.Response(status=400 if first else 204)

    return answer


async def test_a_receiver_is_told_what_comes_out_of_order_and_only_that(
    installation: Installation, receiver: Receiver, put: Put
) -> None:
    blocked = [await put("billing", "order-1", key=f"b{n}") for n in range(3)]
    skipped = [await put("search", "order-1", key=f"s{n}") for n in range(3)]
    receiver.answer = refuse(blocked[0], skipped[0])  # type: ignore[assignment]
    replica = await installation.start()
    await replica.event("job_dead", destination="billing")
    await receiver.wait_until(lambda arrivals: sum(each.path == "/search" for each in arrivals) == 3)
    refused = await installation.command("dead", "redrive", "--all", "--yes")
    assert (refused.code, refused.output) == (5, "2 matched: 1 redriven (billing 1), 1 refused\n")
    await receiver.wait_for(7)
    forced = await installation.command("dead", "redrive", str(skipped[0]), "--yes", "--force")
    assert forced.code == 0
    arrivals = await receiver.wait_for(8)
    seen = [
        (each.sequence, each.key, each.headers["Relay-Attempt"], each.headers.get("Relay-Redrive")) for each in arrivals
    ]
    assert [each for each in seen if each[0] in blocked] == [
        (blocked[0], "b0", "1", None),
        (blocked[0], "b0", "1", None),
        (blocked[1], "b1", "1", None),
        (blocked[2], "b2", "1", None),
    ]
    assert [each for each in seen if each[0] in skipped] == [
        (skipped[0], "s0", "1", None),
        (skipped[1], "s1", "1", None),
        (skipped[2], "s2", "1", None),
        (skipped[0], "s0", "1", "true"),
    ]


async def test_redrives_and_discards_beside_claims_leave_nothing_asleep_and_no_lane_out_of_order(
    installation: Installation, receiver: Receiver, put: Put, connection: Connection, database: str
) -> None:
    """Every job is refused at its first attempt, so each of them stops its lane once; operators never stop redriving.

    Every seventh is discarded where it is found dead. The replica must never have had to heal a lane.
    """
    jobs = [await put("billing", f"order-{n % 4}") for n in range(48)]
    receiver.answer = refuse(*jobs)  # type: ignore[assignment]
    await installation.start_two()
    unfinished = "SELECT 1 FROM outbox.job WHERE status NOT IN ('done', 'discarded') LIMIT 1"

    async def operate(letters: Letters) -> None:
        while await rows(connection, unfinished):
            dead = [letter.id for letter in await letters.find(Selection())]
            if given_up := tuple(job for job in dead if job % 7 == 0):
                await letters.discard(Selection(ids=given_up))
            await letters.redrive(Selection(destination="billing"), force=False)

    async with Database(database, name="test", pool_size=2) as pool, asyncio.timeout(60):
        await asyncio.gather(operate(Letters(pool, actor="ada")), operate(Letters(pool, actor="grace")))
    await until(lambda: _settled(connection))
    statuses = Counter(row[0] for row in await rows(connection, "SELECT status FROM outbox.job"))
    redriven = await rows(connection, "SELECT job_id, count(*) FROM outbox.operation WHERE verb = 'redrive' GROUP BY 1")
    assert statuses == Counter(done=len(redriven), discarded=48 - len(redriven))
    for lane in range(4):
        accepted = [
            each.sequence for each in receiver.answered if each.status == 204 and jobs.index(each.sequence) % 4 == lane
        ]
        assert accepted == sorted(accepted)


async def _settled(connection: Connection) -> bool:
    return not await rows(connection, "SELECT 1 FROM outbox.job WHERE status NOT IN ('done', 'discarded') LIMIT 1")
