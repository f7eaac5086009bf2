"""What a claim may never exceed, whatever lies in the table."""

from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relay.rows import Range
from relay.store import Store
from tests.store.jobs import Jobs, claim_ids, ranges

DESTINATIONS = ("a", "b", "c")


@dataclass(frozen=True)
class Row:
    """One job as hypothesis makes it up."""

    destination: str
    entity_key: str | None
    status: str
    priority: int
    due_s: int
    size: int


rows = st.lists(
    st.builds(
        Row,
        destination=st.sampled_from(DESTINATIONS),
        entity_key=st.sampled_from([None, None, "x", "y", "z"]),
        status=st.sampled_from(["pending", "pending", "pending", "blocked", "dead", "running"]),
        priority=st.integers(0, 3),
        due_s=st.sampled_from([-100, -10, -1, 60]),
        size=st.sampled_from([2, 10, 100, 3000]),
    ),
    max_size=40,
)
frees = st.lists(st.integers(1, 6), min_size=3, max_size=3)


async def fill(jobs: Jobs, table: list[Row]) -> None:
    """Writes the rows as they are, leaving out what the table's constraints would refuse."""
    await jobs.connection.execute("TRUNCATE outbox.job RESTART IDENTITY")
    running: set[tuple[str, str]] = set()
    for row in table:
        lane = row.destination, row.entity_key
        status = row.status
        if (status == "blocked" and row.entity_key is None) or lane in running:
            status = "pending"
        id_ = await jobs.add(
            row.entity_key, row.destination, priority=row.priority, payload=f'"{"x" * (row.size - 2)}"'
        )
        lease = "locked_by = 'gone', locked_until = now(), claims = 1" if status == "running" else "locked_by = NULL"
        if status == "running" and row.entity_key is not None:
            running.add((row.destination, row.entity_key))
        end = (
            f"finished_at = now(), holds_lane = {row.entity_key is not None}" if status == "dead" else "redrive = false"
        )
        due_s = -1 if status == "blocked" else row.due_s
        await jobs.change(id_, f"status = '{status}', {lease}, {end}, run_at = now() + interval '{due_s} s'")


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=rows, frees=frees, width=st.integers(1, 50), budget=st.sampled_from([0, 50, 500, 5000, 1 << 20]))
async def test_no_claim_exceeds_its_slots_its_bytes_or_one_job_a_lane_nor_strands_a_lane(
    store: Store, jobs: Jobs, table: list[Row], frees: list[int], width: int, budget: int
) -> None:
    await fill(jobs, table)
    stranded_before = set(await jobs.stranded())
    free = dict(zip(DESTINATIONS, frees, strict=True))
    asked = [Range(name, priority, free[name], width) for name in DESTINATIONS for priority in range(4)]
    claimed = (await store.claim(asked, payload_bytes=budget)).jobs
    started = Counter(job.destination for job in claimed)
    assert all(started[name] <= free[name] for name in DESTINATIONS)
    assert sum(len(job.body) for job in claimed) <= budget
    lanes = Counter((job.destination, job.entity_key) for job in claimed if job.entity_key is not None)
    assert all(count == 1 for count in lanes.values())
    # A claim may heal a lane that was stranded by hand, and strands none.
    assert set(await jobs.stranded()) <= stranded_before


async def test_a_job_larger_than_what_is_left_waits_while_those_before_it_start(store: Store, jobs: Jobs) -> None:
    small = await jobs.add_many(3, payload='"small"')
    large = await jobs.add(payload=f'"{"x" * 5000}"')
    claimed = await store.claim(ranges(), payload_bytes=1000)
    assert sorted(job.id for job in claimed.jobs) == small
    assert await jobs.statuses(large) == ["pending"]


async def test_a_payload_that_just_fits_starts_even_when_it_is_stored_out_of_line(store: Store, jobs: Jobs) -> None:
    id_ = await jobs.add(body=b"x" * 1_000_000, content_type="text/plain")
    assert [job.id for job in (await store.claim(ranges(), payload_bytes=1 << 20)).jobs] == [id_]


async def test_jobs_that_found_no_slot_spend_no_bytes_of_another_destination(store: Store, jobs: Jobs) -> None:
    await jobs.add_many(20, payload=f'"{"x" * 1000}"')
    ids = await jobs.add_many(5, destination="b")
    claimed = await store.claim([*ranges("a", free=1), *ranges("b", free=5)], payload_bytes=5000)
    assert sorted(job.id for job in claimed.jobs if job.destination == "b") == ids


@pytest.mark.parametrize("width", [1, 3, 64])
async def test_a_window_smaller_than_the_free_slots_starts_what_it_shows(store: Store, jobs: Jobs, width: int) -> None:
    ids = await jobs.add_many(10)
    assert await claim_ids(store, width=width) == ids[:width]
