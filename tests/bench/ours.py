"""The relay as a side of the benchmark: one replica with its defaults, claims, leases, signatures and metrics on.

BENCH_LANES in the environment says how many entities there are, each job its own where it is `each`; without it jobs
have no order. BENCH_SETTINGS are groups of settings, as JSON. BENCH_PROGRAM is a module to run in the place of `relay`.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg

from relay.migrate import migrate
from tests.bench.peers.verbs import Put, obey
from tests.bench.rig import NAME

_INSERT = b"""
INSERT INTO outbox.job (topic, destination, entity_key, payload)
SELECT 'bench', 'bench', CASE %(lanes)s WHEN '' THEN NULL
                                        WHEN 'each' THEN 'entity-' || gen_random_uuid()
                                        ELSE 'entity-' || n %% nullif(%(lanes)s, 'each')::integer END,
       %(payload)s::json
  FROM generate_series(1, %(jobs)s) AS n
"""


@asynccontextmanager
async def producer(dsn: str) -> AsyncIterator[Put]:
    """Inserts by SQL, as producers do."""
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:

        async def put(jobs: int, payload: str) -> None:
            lanes = os.environ.get("BENCH_LANES", "")
            await connection.execute(_INSERT, {"jobs": jobs, "payload": payload, "lanes": lanes})

        yield put


async def run(dsn: str, url: str, slots: int) -> None:
    """Becomes the relay: what is measured is the process that a user starts."""
    settings = {
        "database": {"dsn": dsn},
        "log": {"level": "warning"},
        "destinations": {NAME: {"url": url, "secrets": [{"env": "BENCH_SECRET"}], "max_in_flight": slots}},
        **json.loads(os.environ.get("BENCH_SETTINGS", "{}")),
    }
    config = Path(tempfile.mkdtemp(dir=os.environ["BENCH_HOME"])) / "relay.yaml"
    config.write_text(json.dumps(settings))
    relay = [sys.executable, "-m", "relay", "-c", str(config)]
    subprocess.run([*relay, "sync"], stdout=subprocess.DEVNULL, check=True)  # noqa: ASYNC221 - nothing else runs
    program = os.environ.get("BENCH_PROGRAM", "relay")
    os.execv(sys.executable, [sys.executable, "-m", program, "-c", str(config), "run"])  # noqa: S606 - no shell is meant


if __name__ == "__main__":
    asyncio.run(obey(prepare=migrate, producer=producer, run=run))
