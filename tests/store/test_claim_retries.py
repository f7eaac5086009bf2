"""First attempts and retries of the same lanes, claimed side by side in every order: slots, order, and an end."""

import random
from collections.abc import Sequence

import pytest

from relay.model import Job, Settlement
from relay.rows import Range
from relay.search import PRIORITIES
from relay.store import Store
from tests.store.jobs import BUDGET, Jobs

JOBS = 40
ROUNDS = 1_000
EARLIER = """
SELECT count(*) FROM outbox.job
 WHERE destination = 'a' AND entity_key = %s AND id < %s AND status <> 'done'
"""
STRANDED = """
SELECT count(*) FROM outbox.job b
 WHERE b.status = 'blocked'
   AND NOT EXISTS (SELECT FROM outbox.job h
                    WHERE h.destination = b.destination AND h.entity_key = b.entity_key AND h.holds_lane
                      AND h.status <> 'blocked')
"""


def asked(dice: random.Random) -> Sequence[Range]:
    """The ranges of one claim, in any order, with any share of the slots for retries."""
    free, width = dice.randrange(1, 5), dice.choice((1, 2, 4, 64))
    retries = dice.randrange(free + 1)
    levels = [(priority, retry) for priority in PRIORITIES for retry in (False, True) if retries or not retry]
    dice.shuffle(levels)
    return [
        Range("a", priority, free, min(width, retries) if retry else width, retries=retry, retries_free=retries)
        for priority, retry in levels
    ]


def outcome(dice: random.Random, job: Job) -> Settlement | None:
    """Delivered, failed, released, or still under way."""
    return dice.choice(
        [
            Settlement(job, "done", chain=dice.random() < 0.5),
            Settlement(job, "done"),
            Settlement(job, "pending"),
            Settlement(job, "pending", charged=False),
            None,
        ]
    )


@pytest.mark.parametrize("seed", range(4))
async def test_every_job_ends_in_order_and_within_its_slots(store: Store, jobs: Jobs, seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(JOBS):
        await jobs.add(dice.choice((None, *"abcd")), priority=dice.randrange(4))
    running: dict[int, Job] = {}
    done = 0
    for _ in range(ROUNDS):
        ranges = asked(dice)
        started = (await store.claim(ranges, payload_bytes=BUDGET)).jobs
        assert len(started) <= ranges[0].free
        assert sum(job.is_retry for job in started) <= ranges[0].retries_free
        for job in started:
            assert job.entity_key is None or await jobs.value(EARLIER, job.entity_key, job.id) == 0
            running[job.id] = job
        for job in list(running.values()):
            if (settlement := outcome(dice, job)) is not None:
                settled = await store.settle([settlement])
                assert (job.id, job.claims) in settled.tokens
                del running[job.id]
                done += settlement.status == "done"
                running |= {each.id: each for each in settled.started}
        assert await jobs.value(STRANDED) == 0
        if done == JOBS:
            return
    raise AssertionError(f"{JOBS - done} jobs did not end: {await jobs.statuses(*running)}")
