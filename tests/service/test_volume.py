"""Many jobs at once."""

import asyncio
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Connection
from tests.service.replica import Installation, Replica
from tests.service.table import until

FEW, ALL = 10_000, 100_000
GROWTH_MIB = 40


def resident_mib(replica: Replica) -> float:
    """What the process holds in memory (Linux: /proc)."""
    pages = int(Path(f"/proc/{replica.process.pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


@pytest.mark.timeout(400)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
async def test_a_hundred_thousand_jobs_of_one_statement_are_delivered_without_growing_memory(
    installation: Installation, connection: Connection
) -> None:
    sink = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.service.sink", str(FEW), str(ALL),
        env=installation.environment, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert sink.stdout is not None
    try:
        port = int(await sink.stdout.readline())
        installation.configure({"shop": {"url": f"http://127.0.0.1:{port}/", "max_in_flight": 128}})
        replicas = await installation.start_two()
        await connection.execute(
            "INSERT INTO outbox.job (topic, destination, payload)"
            " SELECT 't', 'shop', to_json(n) FROM generate_series(1, %s) n",
            (ALL,),
        )
        await sink.stdout.readline()
        early = [resident_mib(replica) for replica in replicas]
        requests = int(await sink.stdout.readline())
        late = [resident_mib(replica) for replica in replicas]
        # Nobody died, so nothing is sent twice.
        assert requests == ALL
        assert all(after - before < GROWTH_MIB for before, after in zip(early, late, strict=True)), (early, late)
        await until(connection, "SELECT count(*) = %s FROM outbox.job WHERE status = 'done'", ALL)
        assert [await replica.stop() for replica in replicas] == [0, 0]
    finally:
        sink.kill()
        await sink.wait()
