"""Very long lanes and very many of them: situations 23 and 24."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from relay import rows
from relay.rows import Parameters
from relay.store import Store
from tests.order.lane import deliver
from tests.store.jobs import LEASE_S, Jobs, claim, claim_ids, done, ranges, retry
from tests.store.plan import Planner, buffers

FEW, MANY = 100, 100_000
LEASE: Parameters = {"locked_by": "first", "lease_s": LEASE_S}
CLAIM: Parameters = {**rows.claim_parameters(ranges(), narrow=False), **LEASE, "payload_bytes": 1 << 28}
GO_ON: Parameters = {**rows.lane_parameters({("a", "hot"): True}), **LEASE}
# The indexes of the greater table are a level or two deeper, for each of the few look-ups.
DEEPER = 20
# With `claims` above zero the checks of the input stand aside.
FILL = """
INSERT INTO outbox.job (destination, topic, entity_key, payload, claims, status, run_at)
SELECT 'a', 't', {key}, '{{}}', 1, '{status}', now() + {due} FROM generate_series(1, {count}) n
"""


@pytest.fixture
def planner(database: str) -> Iterator[Planner]:
    """What a statement costs."""
    with closing(Planner(database)) as planner:
        yield planner


def cost(planner: Planner, name: str, parameters: Parameters) -> int:
    """The pages that one execution touches, taken back afterwards."""
    for _ in range(2):
        with planner.knowing("never analysed"):
            touched = buffers(planner.explain(name, parameters, "generic", analyze=True))
    return touched


async def fill(jobs: Jobs, **values: object) -> None:
    """Writes many jobs at once."""
    await jobs.connection.execute("SET session_replication_role = replica")
    await jobs.connection.execute(FILL.format(**values).encode())
    await jobs.connection.execute("SET session_replication_role = origin")


async def test_23_entity_with_very_many_jobs(store: Store, jobs: Jobs, planner: Planner) -> None:
    """Fails when the holder of a lane is found by reading its jobs instead of by the first entry of an index."""
    head = await jobs.add("hot")
    await store.settle([retry((await claim(store))[0])])
    quiet = [await jobs.add(f"quiet {lane}") for lane in range(10)]
    # It rings for its lane.
    await jobs.add("hot")
    costs: dict[int, tuple[int, int]] = {}
    for size in (FEW, MANY):
        await fill(jobs, key="'hot'", status="blocked", due="interval '0'", count=size)
        costs[size] = cost(planner, "claim", CLAIM), cost(planner, "settle_lanes", GO_ON)
    assert all(many <= 1.5 * few + DEEPER for few, many in zip(costs[FEW], costs[MANY], strict=True)), costs
    # The others start as if it were not there, and it brings one job at a time.
    assert await claim_ids(store) == quiet
    await jobs.change(head, "run_at = now()")
    [running] = await claim(store)
    assert running.id == head
    [started] = (await store.settle([done(running, chain=True)])).started
    assert started.entity_key == "hot"


async def test_24_very_many_lanes_in_backoff(store: Store, jobs: Jobs, planner: Planner) -> None:
    """Fails when a claim reads jobs that are not due."""
    quiet = await jobs.add("quiet")
    costs: dict[int, int] = {}
    for size in (FEW, MANY):
        await fill(jobs, key=f"'e{size} ' || n", status="pending", due="interval '1 day'", count=size)
        costs[size] = cost(planner, "claim", CLAIM)
    assert costs[MANY] <= 1.5 * costs[FEW] + DEEPER, costs
    assert await deliver(store) == [quiet]
