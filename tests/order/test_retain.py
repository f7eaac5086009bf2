"""What age does to a lane: situation 30."""

import pytest

from relay.store import Store
from tests.order.lane import deliver
from tests.store.jobs import Jobs, claim, dead, retry

AGE = """
UPDATE outbox.job
   SET created_at = now() - interval '10 years', run_at = now() - interval '10 years',
       finished_at = CASE WHEN status = 'dead' OR id = %s THEN now() - interval '10 years' ELSE finished_at END
"""


@pytest.mark.parametrize("head", ["dead", "in backoff", "running"])
async def test_30_retention(store: Store, jobs: Jobs, head: str) -> None:
    """Fails when retention deletes by creation time, or anything that is not done or discarded."""
    lane = await jobs.add_many(3, "e")
    [job] = await claim(store)
    if head != "running":
        await store.settle([dead(job, blocks=True) if head == "dead" else retry(job)])
    unordered, unrouted = await jobs.add(), await jobs.add(destination=None)
    fresh = await jobs.add_many(2, "done")
    assert set(await deliver(store)) == {unordered, *fresh}
    pending = await jobs.add()
    await jobs.connection.execute(AGE, [unordered])
    assert (await store.retain_jobs(3600.0, limit=100)).rows == 1
    kept = await jobs.value("SELECT array_agg(id ORDER BY id) FROM outbox.job")
    assert kept == sorted([*lane, unrouted, *fresh, pending])
