"""How deliveries grow with replicas until one PostgreSQL, held to one core, is full; and what its sessions wait for."""

import contextlib
import signal
import time
from collections import Counter
from dataclasses import dataclass

import httpx
import psycopg

from relay.demo.nest import Nest
from relay.demo.postgres import Postgres
from tests.bench import cpu
from tests.bench.rig import receiver
from tests.bench.sides import RELAY, Stage

REPLICAS = (1, 2, 4, 8)
_SAMPLE_S = 0.02
_WAITS = b"""
SELECT coalesce(wait_event_type || ' ' || wait_event, 'on the CPU')
  FROM pg_stat_activity
 WHERE datname = current_database() AND state = 'active' AND pid <> pg_backend_pid()
"""
_CONNECTIONS = b"SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'relay %'"


@dataclass(frozen=True)
class Scaled:
    """What so many replicas did together, and where the database's sessions were found when it was sampled."""

    replicas: int
    per_s: float
    client_core: float
    postgres_core: float
    postgres_ms: float
    connections: int
    waits: Counter[str]


def scaled(nest: Nest, postgres: Postgres, replicas: int, jobs: int) -> Scaled:
    """`jobs` are there when all replicas are let go at once."""
    stage = Stage(nest, postgres, RELAY)
    with receiver(0) as url, stage.connect() as connection, contextlib.ExitStack() as stack:
        processes = [stack.enter_context(stage.running(url)) for _ in range(replicas)]
        [connections] = connection.execute(_CONNECTIONS).fetchone() or (0,)
        for process in processes:
            process.send_signal(signal.SIGSTOP)
        stage.obey("insert", jobs, 500)
        connection.execute("ANALYZE")
        httpx.get(url, trust_env=False)
        meter = cpu.Meter(postgres, processes)
        for process in processes:
            process.send_signal(signal.SIGCONT)
        waits = _sample(connection, url, jobs)
        spent = meter.spent()
    per_s, client_core, postgres_core = (each / spent.wall_s for each in (jobs, spent.client_s, spent.postgres_s))
    return Scaled(replicas, per_s, client_core, postgres_core, 1000 * spent.postgres_s / jobs, connections, waits)


def _sample(connection: psycopg.Connection, url: str, jobs: int) -> Counter[str]:
    """What sessions wait for, until everything has arrived."""
    waits: Counter[str] = Counter()
    while httpx.get(url + "count", trust_env=False).json()["keys"] < jobs:
        waits.update(row[0] for row in connection.execute(_WAITS))
        time.sleep(_SAMPLE_S)
    return waits
