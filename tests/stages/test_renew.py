"""Leases are kept while a delivery lasts, and their loss is noticed."""

import asyncio
import logging
import time

import psycopg
import pytest

from relay.renew import Renewer
from relay.store import Store
from tests.conftest import Connection
from tests.stages.stage import LEASE_S, claim, insert

LEFT = "SELECT extract(epoch FROM locked_until - now())::float8 FROM outbox.job ORDER BY id"


async def left_s(connection: Connection) -> list[float]:
    """What the database says is left of each lease."""
    cursor = await connection.execute(LEFT)
    return [row[0] for row in await cursor.fetchall()]


async def test_a_lease_is_extended_in_the_table_and_in_what_the_replica_believes(
    store: Store, connection: Connection
) -> None:
    await insert(connection, 2)
    since_s = time.monotonic() - LEASE_S / 2
    jobs = await claim(store, 2)
    renewer = Renewer(store, LEASE_S)
    renewer.hold(jobs, since_s)
    await connection.execute("UPDATE outbox.job SET locked_until = locked_until - interval '30 s'")
    assert await renewer.step() == LEASE_S / 3
    believed = [renewer.remaining_s(each) for each in jobs]
    in_truth = await left_s(connection)
    assert min(believed) > LEASE_S / 2
    # The replica never believes in more than there is; both clocks have gone on since they were read.
    assert all(b <= t + 1 for b, t in zip(believed, in_truth, strict=True))


async def test_a_lease_that_another_replica_has_taken_is_reported_once_and_forgotten(
    store: Store, other_store: Store, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    await insert(connection, 2)
    jobs = await claim(store, 2)
    renewer = Renewer(store, LEASE_S)
    renewer.hold(jobs, time.monotonic())
    await connection.execute(
        "UPDATE outbox.job SET status = 'pending', locked_by = NULL, locked_until = NULL WHERE id = 1"
    )
    await claim(other_store, 1)
    await renewer.step()
    await renewer.step()
    lost = [record for record in caplog.records if record.getMessage() == "lease_lost"]
    assert [record.levelno for record in lost] == [logging.WARNING]
    gone, kept = sorted(jobs, key=lambda each: each.id)
    assert renewer.remaining_s(gone) < 0 < renewer.remaining_s(kept)


async def test_a_newer_claim_of_the_same_replica_ends_the_older_lease(store: Store, connection: Connection) -> None:
    """As when it was frozen, another one took its job back, and it claims the job again."""
    await insert(connection, 1)
    [old] = await claim(store, 1)
    renewer = Renewer(store, LEASE_S)
    renewer.hold([old], time.monotonic() - 2 * LEASE_S)
    await connection.execute("UPDATE outbox.job SET status = 'pending', locked_by = NULL, locked_until = NULL")
    [new] = await claim(store, 1)
    renewer.hold([new], time.monotonic())
    await renewer.step()
    assert renewer.remaining_s(old) < 0 < renewer.remaining_s(new)
    renewer.drop([old])
    assert renewer.remaining_s(new) > 0


async def test_a_row_that_is_merely_locked_is_no_lost_lease(
    store: Store, connection: Connection, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    await insert(connection, 1)
    jobs = await claim(store, 1)
    renewer = Renewer(store, LEASE_S)
    renewer.hold(jobs, time.monotonic() - 1)
    async with await psycopg.AsyncConnection.connect(database) as foreign:
        await foreign.execute("SELECT FROM outbox.job FOR UPDATE")
        await renewer.step()
    assert caplog.records == []
    assert 0 < renewer.remaining_s(jobs[0]) <= LEASE_S - 1
    await renewer.step()
    assert renewer.remaining_s(jobs[0]) > LEASE_S - 1


async def test_a_job_settled_while_its_lease_is_being_renewed_is_neither_kept_nor_reported(
    store: Store, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    await insert(connection, 1)
    jobs = await claim(store, 1)
    renewer = Renewer(store, LEASE_S)
    renewer.hold(jobs, time.monotonic())
    renewal = asyncio.create_task(renewer.step())
    await asyncio.sleep(0)
    renewer.drop(jobs)
    await connection.execute("UPDATE outbox.job SET status = 'pending', locked_by = NULL, locked_until = NULL")
    await renewal
    assert caplog.records == []
    assert renewer.remaining_s(jobs[0]) < 0
