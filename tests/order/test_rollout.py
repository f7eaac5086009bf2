"""Replicas of different configuration or version beside each other: situations 20, 21 and 29."""

from collections.abc import Awaitable, Callable, Iterator
from itertools import count

import psycopg
import pytest

from relay.admin import Admin
from relay.database import Database
from relay.demo.postgres import Postgres
from relay.errors import RelayError
from relay.store import Store
from tests.order.lane import LAPSED
from tests.receiver import Receiver
from tests.service.replica import Installation
from tests.service.table import until
from tests.store.jobs import BUDGET, Jobs, claim, ranges, webhook

Open = Callable[..., Awaitable[Database]]
ROWS = "SELECT array_agg(xmin::text ORDER BY id) FROM outbox.job WHERE destination = 'new'"
NEWER = "INSERT INTO outbox.migration VALUES (99, '0099_newer', '', %s)"


@pytest.fixture(scope="session")
def numbers() -> Iterator[int]:
    """Names for databases."""
    return count(1)


async def test_20_destination_unknown_to_this_replica(
    store: Store, other: Store, jobs: Jobs, open_database: Open
) -> None:
    """Fails when a claim or a reclaim touches what its replica was not configured with."""
    lapsed, _ = await jobs.add_many(2, "e", destination="new")
    await claim(other, "new")
    await jobs.change(lapsed, LAPSED)
    await jobs.add_many(2, destination="new")
    [known] = await jobs.add_many(1, "e")
    before = await jobs.value(ROWS)
    claimed = await store.claim(ranges("a"), payload_bytes=BUDGET)
    assert [job.id for job in claimed.jobs] == [known]
    assert await store.reclaim([webhook("a")], limit=10) == []
    assert await store.release_standing_lanes(["a"], limit=10) == 0
    assert (await store.heal(("", ""), limit=10))[0] == []
    assert (await store.retain_jobs(0.0, limit=10)).rows == 0
    assert await jobs.value(ROWS) == before
    status = await Admin(await open_database()).status()
    [shown] = [each for each in status.destinations if each.name == "new"]
    assert (shown.registered, shown.due, shown.running, shown.blocked) == (False, 2, 1, 1)


async def test_21_destination_removed_from_the_configuration(jobs: Jobs, open_database: Open) -> None:
    """Fails when a sync retires what it was not told to by name."""
    admin = Admin(await open_database())
    await admin.sync([webhook("a"), webhook("b")], generation=1, retire=[])
    waiting = await jobs.add_many(2, "e", destination="b")
    removed = await admin.sync([webhook("a")], generation=2, retire=[])
    assert (removed.retired, removed.not_configured) == ([], ["b"])
    assert not any(each.retired for each in await admin.registry())
    retired = await admin.sync([webhook("a")], generation=2, retire=["b"])
    assert (retired.retired, retired.not_configured) == (["b"], [])
    assert await jobs.statuses(*waiting) == ["pending", "pending"]
    [shown] = [each for each in (await admin.status()).destinations if each.name == "b"]
    assert (shown.retired, shown.due) == (True, 2)


async def test_21_old_replica_restarts_in_the_middle_of_a_rollout(
    installation: Installation, jobs: Jobs, open_database: Open
) -> None:
    """Fails when a lower generation overwrites a higher one, or `relay run` writes to the registry."""
    admin = Admin(await open_database())
    await admin.sync([webhook("shop"), webhook("new")], generation=2, retire=[])
    before = await admin.registry()
    with pytest.raises(RelayError, match=r"generation 2 and this configuration of registry\.generation 1"):
        await admin.sync([webhook("shop")], generation=1, retire=["new"])
    installation.configure({"shop": {"url": "http://127.0.0.1:1/", "topics": ["other"]}}, registry={"generation": 1})
    refused = await installation.command("sync", "--retire", "new")
    assert (refused.code, refused.output) == (5, "")
    replica = await installation.start()
    assert replica.logged("destination_not_configured", destination="new")
    assert replica.logged("destination_differs", destination="shop")
    await jobs.add("e", destination="new")
    assert await replica.stop() == 0
    assert await admin.registry() == before
    assert await jobs.statuses() == ["pending"]


@pytest.mark.parametrize("may_run", [True, False], ids=["additive", "incompatible"])
async def test_29_two_relay_versions_during_a_rollout(
    installation: Installation,
    receiver: Receiver,
    postgres: Postgres,
    template: str,
    numbers: Iterator[int],
    *,
    may_run: bool,
) -> None:
    """Fails when the start does not ask the newer schema whether old replicas may run, or asks and does not obey."""
    installation.dsn = postgres.create_database(f"rollout_{next(numbers)}", template=template)
    installation.configure({"shop": {"url": receiver.url()}})
    async with await psycopg.AsyncConnection.connect(installation.dsn, autocommit=True) as connection:
        running = await installation.start("running") if may_run else None
        await connection.execute(NEWER, [may_run])
        if not may_run:
            refused = await installation.command("run")
            assert (refused.code, refused.output) == (4, "")
            assert "the database has 0099_newer" in refused.error
            assert "upgrade this replica before it can run" in refused.error
            return
        await connection.execute("ALTER TABLE outbox.job ADD COLUMN newer text DEFAULT 'x'")
        await installation.start("restarted")
        await connection.execute(
            "INSERT INTO outbox.job (topic, destination, entity_key, payload)"
            " SELECT 't', 'shop', 'e' || n %% 5, '{}' FROM generate_series(1, 50) n",
            (),
        )
        await receiver.wait_for(50)
        await until(connection, "SELECT count(*) = 50 FROM outbox.job WHERE status = 'done' AND claims = 1")
        assert running is not None
        assert running.process.poll() is None
