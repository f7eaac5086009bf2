"""A deploy under load: nothing is lost, doubled or overtaken, and nothing is left to a lease that lapses.

make rollout
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import psycopg
import pytest

from relay import __version__
from relay.demo.nest import Nest
from relay.migrate import migrate
from tests.receiver import Receiver
from tests.rollout.build import NAME, VERSION, next_version
from tests.rollout.load import complaints, load, out_of_order
from tests.service.replica import Installation, Replica
from tests.service.table import counts

MANY = 8


@pytest.fixture
async def shop(nest: Nest, tmp_path: Path, new_database: str, receiver: Receiver) -> AsyncIterator[Installation]:
    """A migrated database of this test's own, and a registered destination."""
    await migrate(new_database)
    installation = Installation(nest, tmp_path, new_database)
    # Else the working directory's package would be the one that runs.
    installation.environment["PYTHONSAFEPATH"] = "1"
    installation.configure({"shop": {"url": receiver.url(), "topics": ["order.*"], "max_in_flight": 8}})
    assert (await installation.command("sync")).code == 0
    yield installation
    await installation.close()


async def stop(replicas: Sequence[Replica]) -> float:
    """SIGTERM to all of them at once; how long the last one took, in seconds."""
    began_s = time.monotonic()
    assert set(await asyncio.gather(*(replica.stop() for replica in replicas))) == {0}
    return time.monotonic() - began_s


async def all_done_in_order(shop: Installation, receiver: Receiver, jobs: int) -> None:
    """Each job once, in order, and without a word of complaint."""
    async with await psycopg.AsyncConnection.connect(shop.dsn, autocommit=True) as connection:
        assert await counts(connection) == {"done": jobs}
    assert len(receiver.arrivals) == jobs
    assert out_of_order(receiver.arrivals) == []
    assert complaints(shop.replicas) == []


async def test_the_next_version_takes_over_under_load(shop: Installation, receiver: Receiver, tmp_path: Path) -> None:
    old = [await shop.start("old-one"), await shop.start("old-two")]
    shop.environment["PYTHONPATH"] = str(next_version(tmp_path / "next", old_replicas="may run"))
    async with load(shop.dsn, receiver) as producing:
        await producing.goes_on()
        migrated = await shop.command("migrate")
        assert (migrated.code, migrated.output) == (0, f"applied {NAME}\n")
        await producing.goes_on()
        new = [await shop.start("new-one"), await shop.start("new-two")]
        assert [each.logged("replica_started")[0]["version"] for each in (*old, *new)] == [__version__] * 2 + [
            VERSION
        ] * 2
        await producing.goes_on()
        took_s = await stop(old)
        await producing.goes_on()
    await stop(new)
    await all_done_in_order(shop, receiver, len(producing.committed))
    print(f"rollout: {len(producing.committed)} jobs, the old replicas drained in {took_s:.2f} s")


async def test_old_code_refuses_a_schema_that_is_not_for_it(
    shop: Installation, receiver: Receiver, tmp_path: Path
) -> None:
    old = dict(shop.environment)
    shop.environment["PYTHONPATH"] = str(next_version(tmp_path / "next", old_replicas="must stop"))
    assert (await shop.command("migrate")).code == 0
    async with load(shop.dsn, receiver) as producing:
        await shop.start("new")
        shop.environment = old
        for verb in ("run", "migrate"):
            refused = await shop.command(verb)
            assert (refused.code, refused.output) == (4, "")
            assert f"the database has {NAME}" in refused.error
            assert "upgrade this replica before it can run" in refused.error
        await producing.goes_on()
    await stop(shop.replicas)
    await all_done_in_order(shop, receiver, len(producing.committed))


async def test_one_replica_becomes_eight_and_one_again_under_load(shop: Installation, receiver: Receiver) -> None:
    first = await shop.start("first")
    async with load(shop.dsn, receiver) as producing:
        more = await asyncio.gather(*(shop.start(f"more-{number}") for number in range(MANY - 1)))
        # So that none of them is without work when it is told to stop.
        await producing.goes_on(200)
        took_s = await stop(more)
        await producing.goes_on()
    await stop([first])
    await all_done_in_order(shop, receiver, len(producing.committed))
    print(f"scale 1, {MANY}, 1: {len(producing.committed)} jobs, {MANY - 1} replicas drained in {took_s:.2f} s")
