"""Whether a claim costs more where a table is large or in trouble: pages touched, by EXPLAIN (ANALYZE, BUFFERS).

The situations are those of `tests/store/test_claim_cost.py`, at the sizes given here; and a plain backlog.
`python -m tests.bench.flat --jobs 10000000` (`make backlog`) has a backlog of so many, beside the rest.
"""

import argparse
import asyncio
import sys
from collections.abc import Mapping

import psycopg

from relay.demo.nest import Nest
from relay.demo.postgres import Postgres
from relay.migrate import migrate
from tests.store import test_claim_cost as claims
from tests.store.jobs import ranges
from tests.store.plan import Planner

SMALL = {**claims.SMALL, "broken": 1_000}
QUICK = {"hot": 20_000, "backoff": 10_000, "standing": 2_000, "broken": 100_000, "refused": 10_000, "churned": 20_000}
FULL = {"hot": 1_000_000, "backoff": 100_000, "standing": 50_000, "broken": 1_000_000, "refused": 100_000,
        "churned": 500_000}  # fmt: skip
MOST = claims.MOST
BACKLOG = "a backlog"


def _costs(postgres: Postgres, name: str, sizes: Mapping[str, int]) -> dict[str, int]:
    """Pages of each situation's dearest claim, whatever the planner knows of the table."""
    dsn = postgres.create_database(name)
    asyncio.run(migrate(dsn))
    found = asyncio.run(claims.costs(dsn, sizes))
    planner = Planner(dsn)
    found |= claims.measure(planner, BACKLOG, ranges("broken"))
    planner.close()
    with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name}".encode())
    dearest: dict[str, int] = {}
    for (situation, _, _), pages in found.items():
        dearest[situation] = max(pages, dearest.get(situation, 0))
    # Where there is no sweep mark a claim walks what vacuum could not remove: tests/store says so, no claim does it.
    dearest.pop(claims.FROM_THE_FRONT)
    return dearest


def flatness(postgres: Postgres, sizes: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Of each situation the pages in a small table, and at these sizes."""
    small, large = _costs(postgres, "flat_small", SMALL), _costs(postgres, "flat_large", sizes)
    return {situation: (small[situation], pages) for situation, pages in large.items()}


def table(found: Mapping[str, tuple[int, int]]) -> None:
    """Prints what `flatness` found."""
    print(f"{'':56}{'small':>7}{'large':>7}{'ratio':>7}")
    for situation, (small, large) in found.items():
        print(f"{situation:56}{small:7}{large:7}{large / small:7.2f}", flush=True)


def main() -> int:
    """Prints the table; the exit code is 1 where a claim costs too much more."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10_000_000)
    jobs = parser.parse_args().jobs
    with Nest() as nest, Postgres(nest, tcp=True, options={"max_wal_size": "8GB"}) as postgres:
        found = flatness(postgres, {**QUICK, "broken": jobs})
    print(f"pages a claim of 64 touches, with a backlog of {jobs:,}:")
    table(found)
    return int(any(large > MOST * small for small, large in found.values()))


if __name__ == "__main__":
    sys.exit(main())
