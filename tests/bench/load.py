"""How long jobs are on their way at a part of what a replica can do: by NOTIFY, by polling, and through PgBouncer."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace

import psycopg

from relay.demo.nest import Nest
from relay.demo.postgres import Postgres
from tests.bench.arrivals import Arrivals
from tests.bench.sides import RELAY, Side, Stage
from tests.cli.pooler import pgbouncer

SHARES = (0.25, 0.5, 0.75)
_TICK_S = 0.01
_INSERT = (
    "INSERT INTO outbox.job (topic, destination, payload)"
    " SELECT 'bench', 'bench', to_json(repeat('x', 498)) FROM generate_series(1, %s) RETURNING id"
)


@dataclass(frozen=True)
class Loaded:
    """Milliseconds from commit to receiver at `share` of `most_per_s`."""

    way: str
    share: float
    most_per_s: float
    ms: list[float]

    def percentile(self, share: float) -> float:
        """The value that so many of 100 do not exceed."""
        return self.ms[min(len(self.ms) - 1, int(share / 100 * len(self.ms)))]


@contextlib.asynccontextmanager
async def _running(stage: Stage, url: str) -> AsyncIterator[None]:
    running = stage.running(url)
    await asyncio.to_thread(running.__enter__)
    try:
        yield
    finally:
        await asyncio.to_thread(running.__exit__, None, None, None)


async def _most_per_s(arrivals: Arrivals, connection: psycopg.AsyncConnection, jobs: int) -> float:
    arrivals.at_s.clear()
    await connection.execute(_INSERT, (jobs,))
    while len(arrivals.at_s) < jobs:
        await asyncio.sleep(_TICK_S)
    at_s = sorted(arrivals.at_s.values())
    return jobs / (at_s[-1] - at_s[0])


async def _ms(
    arrivals: Arrivals, connection: psycopg.AsyncConnection, rate_per_s: float, seconds: float
) -> list[float]:
    """A few jobs are committed together every 10 ms, as several producers would."""
    committed_s: dict[int, float] = {}
    began_s, inserted = time.monotonic(), 0
    while (since_s := time.monotonic() - began_s) < seconds:
        if (due := int(since_s * rate_per_s) - inserted) > 0:
            rows = await (await connection.execute(_INSERT, (due,))).fetchall()
            committed_s |= dict.fromkeys((row[0] for row in rows), time.monotonic())
            inserted += due
        await asyncio.sleep(_TICK_S)
    while not committed_s.keys() <= arrivals.at_s.keys():
        await asyncio.sleep(_TICK_S)
    # One event loop sees both: a request can be read before the answer to the commit that caused it.
    return sorted(max(0.0, 1000 * (arrivals.at_s[job] - at_s)) for job, at_s in committed_s.items())


async def _loaded(stage: Stage, way: str, seconds: float) -> list[Loaded]:
    async with (
        Arrivals() as arrivals,
        _running(stage, arrivals.url("/")),
        await psycopg.AsyncConnection.connect(stage.dsn, autocommit=True) as connection,
    ):
        most_per_s = await _most_per_s(arrivals, connection, 5_000)
        return [
            Loaded(way, share, most_per_s, await _ms(arrivals, connection, share * most_per_s, seconds))
            for share in SHARES
        ]


@contextlib.contextmanager
def _ways(nest: Nest, postgres: Postgres) -> Iterator[dict[str, Stage]]:
    """A stage for each way to hear of jobs. No NOTIFY comes through PgBouncer: LISTEN goes past it, or not at all."""

    def stage(settings: dict[str, object]) -> Stage:
        side: Side = replace(RELAY, environment={"BENCH_SETTINGS": json.dumps(settings)})
        return Stage(nest, postgres, side)

    pooled, polling = Stage(nest, postgres, RELAY), Stage(nest, postgres, RELAY)
    with pgbouncer(nest, pooled.dsn) as dsn, pgbouncer(nest, polling.dsn) as polled_dsn:
        database = {"dsn": dsn, "listen_dsn": pooled.dsn, "prepared_statements": False}
        pooled.environment["BENCH_SETTINGS"] = json.dumps({"database": database})
        database = {"dsn": polled_dsn, "prepared_statements": False}
        polling.environment["BENCH_SETTINGS"] = json.dumps({"database": database, "replica": {"notify": False}})
        yield {
            "NOTIFY": stage({}),
            "polling": stage({"replica": {"notify": False}}),
            "PgBouncer, LISTEN past it": pooled,
            "PgBouncer, polling": polling,
        }


def loaded(nest: Nest, postgres: Postgres, seconds: float) -> list[Loaded]:
    """Each way at each share of what the replica can do that way."""
    with _ways(nest, postgres) as ways:
        return [each for way, stage in ways.items() for each in asyncio.run(_loaded(stage, way, seconds))]
