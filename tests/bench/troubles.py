"""Whether deliveries cost more, or an urgent job waits longer, where a table is large or in trouble.

`python -m tests.bench.troubles [--quick] [--backlog JOBS]`. In each case one replica delivers as fast as it can from
a backlog that is held at its size while jobs go in and out, beside what is in trouble; every 20 ms a job of the most
urgent priority is committed for the same destination. What counts is the ratio to the first case, a backlog of 1,000
and nothing else. `tests.bench.flat` has the pages that a claim touches in these cases. With `--backlog` the only other
case is one of that size.
"""

import argparse
import asyncio
import contextlib
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import psycopg

from relay.demo.nest import Nest
from relay.demo.postgres import Postgres
from tests.bench import cpu
from tests.bench.arrivals import Arrivals
from tests.bench.rig import NAME, Rig

MOST = 1.5
SECONDS = 6.0
SLOTS = 64
_TICK_S = 0.01
_TICKS_A_PROBE = 2
_SETTLES_S = 1.5
_REFUSED = "http://127.0.0.1:9/"  # nobody listens at the port of discard
_OPTIONS = {"max_wal_size": "32GB", "checkpoint_timeout": "1h"}
_JOBS = b"""
INSERT INTO outbox.job (topic, destination, payload) SELECT 't', 'bench', to_json(repeat('x', 498))
  FROM generate_series(1, %s)
"""
_URGENT = b"INSERT INTO outbox.job (topic, destination, payload, priority) VALUES ('t', 'bench', '{}', 0) RETURNING id"
# With `claims` above zero the checks of the input stand aside, so a million rows are written in seconds.
_COLUMNS = b"INSERT INTO outbox.job (topic, claims, destination, entity_key, payload, status, run_at) "
_DUE = _COLUMNS + (
    b"SELECT 't', 1, %(destination)s, NULL, to_json(repeat('x', 498)), 'pending', now() - interval '1 h'"
    b" FROM generate_series(1, %(jobs)s)"
)
_ENTITY = _COLUMNS + (
    b"SELECT 't', 1, 'bench', 'hot', '{}', CASE n WHEN 1 THEN 'pending' ELSE 'blocked' END, now() - interval '1 h'"
    b" FROM generate_series(1, %(jobs)s) n"
)
_BACKOFF = _COLUMNS + (
    b"SELECT 't', 1, 'bench', 'late-' || n, '{}', s, now() + interval '1 h'"
    b" FROM generate_series(1, %(jobs)s) n, unnest('{pending,blocked}'::text[]) s"
)


@dataclass(frozen=True)
class Case:
    """What a table is filled with before the replica starts, and the destinations beside the one that is measured."""

    name: str
    backlog: int = 1_000
    fill: bytes = b""
    values: Mapping[str, object] = field(default_factory=dict)
    others: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    churn: int = 0


@dataclass(frozen=True)
class Cost:
    """Deliveries a second, the CPU time of each but its INSERT, and how long urgent jobs were on their way."""

    per_s: float
    client_ms: float
    postgres_ms: float
    waits_ms: Sequence[float]

    @property
    def median_ms(self) -> float:
        """Half of the urgent jobs waited less."""
        return statistics.median(self.waits_ms)

    def ratios(self, base: "Cost") -> dict[str, float]:
        """How much more each costs than in another case."""
        return {
            "client": self.client_ms / base.client_ms,
            "PG": self.postgres_ms / base.postgres_ms,
            "urgent p50": self.median_ms / base.median_ms,
        }


def backlog(jobs: int) -> Case:
    """A backlog of so many jobs."""
    return Case(f"a backlog of {jobs:,}", backlog=jobs)


def cases(share: float) -> list[Case]:
    """All of them, at this share of their full size."""
    million, lanes, churn = int(1_000_000 * share), int(100_000 * share), int(500_000 * share)
    nineteen = {f"other-{n}": {"url": _REFUSED} for n in range(19)}
    dead = _DUE, {"destination": "other-0", "jobs": lanes}
    return [
        backlog(1_000),
        backlog(lanes),
        backlog(million),
        Case(f"one entity with {million:,} jobs", fill=_ENTITY, values={"jobs": million}),
        Case(f"{lanes:,} lanes in backoff", fill=_BACKOFF, values={"jobs": lanes}),
        Case("20 destinations", others=nineteen),
        Case(f"20 destinations, one dead with {lanes:,} jobs", fill=dead[0], values=dead[1], others=nineteen),
        Case("1,000 destinations", others={f"other-{n}": {"url": _REFUSED} for n in range(999)}),
        Case(f"a transaction open during {churn:,} jobs", churn=churn),
    ]


class _Load:
    """One case under way: holds the backlog at its size, and probes."""

    def __init__(self, connection: psycopg.AsyncConnection, arrivals: Arrivals) -> None:
        self._connection = connection
        self._arrivals = arrivals
        self._replaced = len(arrivals.at_s)
        self.committed_s: dict[int, float] = {}

    async def run(self, seconds: float) -> None:
        """Replaces what was delivered, and commits an urgent job now and then."""
        ends_s, tick = time.monotonic() + seconds, 0
        while time.monotonic() < ends_s:
            await self.replace()
            if tick % _TICKS_A_PROBE == 0:
                row = await (await self._connection.execute(_URGENT)).fetchone()
                assert row is not None
                self.committed_s[row[0]] = time.monotonic()
            tick += 1
            await asyncio.sleep(_TICK_S)

    async def replace(self) -> None:
        """Inserts as many as have arrived since."""
        if arrived := len(self._arrivals.at_s) - self._replaced:
            await self._connection.execute(_JOBS, (arrived,))
            self._replaced += arrived

    async def waits_ms(self) -> list[float]:
        """How long the urgent jobs were on their way, once all have arrived; sorted."""
        while not self.committed_s.keys() <= self._arrivals.at_s.keys():
            await asyncio.sleep(_TICK_S)
        return sorted(max(0.0, 1000 * (self._arrivals.at_s[job] - at_s)) for job, at_s in self.committed_s.items())


async def _cost(rig: Rig, postgres: Postgres, case: Case, seconds: float) -> Cost:
    """Runs one case, whose table is filled."""
    async with Arrivals() as arrivals, await psycopg.AsyncConnection.connect(rig.dsn, autocommit=True) as connection:
        own = {"url": arrivals.url("/"), "max_in_flight": SLOTS}
        async with contextlib.AsyncExitStack() as stack:
            running = contextlib.ExitStack()
            # Not on this thread: what is in flight is answered by it.
            stack.push_async_callback(asyncio.to_thread, running.close)
            replica = running.enter_context(rig.replica({NAME: own, **case.others}))
            running.enter_context(_held_back(rig, case))
            load = _Load(connection, arrivals)
            while len(arrivals.at_s) < case.churn:
                await load.replace()
                await asyncio.sleep(_TICK_S)
            await load.run(_SETTLES_S)
            load.committed_s.clear()
            before, cpus = len(arrivals.at_s), cpu.Meter(postgres, [replica])
            inserted_s = -cpu.process_s(connection.info.backend_pid)
            await load.run(seconds)
            jobs, spent = len(arrivals.at_s) - before, cpus.spent()
            inserted_s += cpu.process_s(connection.info.backend_pid)
            client_ms = 1000 * spent.client_s / jobs
            postgres_ms = 1000 * (spent.postgres_s - inserted_s) / jobs
            return Cost(jobs / spent.wall_s, client_ms, postgres_ms, await load.waits_ms())


@contextlib.contextmanager
def _held_back(rig: Rig, case: Case) -> Iterator[None]:
    """A transaction whose snapshot keeps vacuum from removing anything, where the case has one."""
    with contextlib.ExitStack() as stack:
        if case.churn:
            holder = stack.enter_context(psycopg.connect(rig.dsn))
            holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            holder.execute("SELECT FROM outbox.destination")
        yield


def _fill(rig: Rig, case: Case) -> None:
    with rig.connect() as connection:
        rig.empty(connection)
        connection.execute("SET session_replication_role = replica")
        connection.execute("SET synchronous_commit = off")
        if case.fill:
            connection.execute(case.fill, case.values)
        connection.execute(_DUE, {"destination": NAME, "jobs": case.backlog})
        connection.execute("VACUUM ANALYZE outbox.job")


def costs(nest: Nest, postgres: Postgres, chosen: Sequence[Case], seconds: float) -> dict[str, Cost]:
    """Each case, one after the other."""
    rig, found = Rig(nest, postgres), {}
    for case in chosen:
        _fill(rig, case)
        found[case.name] = asyncio.run(_cost(rig, postgres, case, seconds))
    return found


def table(found: Mapping[str, Cost]) -> list[str]:
    """Prints the costs; a sentence for each that is too high."""
    [base, *_] = found.values()
    print("\ndeliveries while a table is large or in trouble, beside the first case:")
    print(f"{'':46}{'jobs/s':>8}{'client ms':>11}{'ratio':>7}{'PG ms':>8}{'ratio':>7}{'urgent p50 ms':>15}{'ratio':>7}"
          f"{'p99':>7}")  # fmt: skip
    faults = []
    for name, cost in found.items():
        ratios = cost.ratios(base)
        print(f"{name:46}{cost.per_s:8.0f}{cost.client_ms:11.3f}{ratios['client']:7.2f}{cost.postgres_ms:8.3f}"
              f"{ratios['PG']:7.2f}{cost.median_ms:15.1f}{ratios['urgent p50']:7.2f}"
              f"{cost.waits_ms[int(0.99 * len(cost.waits_ms))]:7.1f}", flush=True)  # fmt: skip
        faults += [f"{name}: {what} costs {ratio:.2f} times as much" for what, ratio in ratios.items() if ratio > MOST]
    return faults


def main() -> int:
    """Prints the table; the exit code is 1 where something costs too much more."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the sizes")
    parser.add_argument("--backlog", type=int, help="only one of so many jobs, beside a small one")
    arguments = parser.parse_args()
    quick, jobs = arguments.quick, arguments.backlog
    chosen = [backlog(1_000), backlog(jobs)] if jobs else cases(0.05 if quick else 1.0)
    with Nest() as nest, Postgres(nest, tcp=True, options=_OPTIONS) as postgres:
        faults = table(costs(nest, postgres, chosen, SECONDS / 2 if quick else SECONDS))
    for fault in faults:
        print(f"troubles: {fault}, more than {MOST}", file=sys.stderr)
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
