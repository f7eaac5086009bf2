"""`make histories COUNT=2000 SEED=1`: forced interleavings of the lane protocol, also inside its statements.

Each history is a sequence of claims, settles, reclaims, commits, cancels and redrives drawn from the seed, any of
them stopped at a place inside its statement while others go on. At its end there are only claims. Exit code 1 when
the oracle is not content with one of them; `--only N` tells that history again, move by move.

`--broken` gives a settle's second statement the first one's snapshot, and ends once that is caught: exit code 0 then,
1 when it never was.
"""

import argparse
import asyncio
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator

from relay.database import SQL
from relay.demo.nest import Nest
from relay.demo.postgres import Postgres
from relay.migrate import migrate
from tests.histories import oracle
from tests.histories.history import History
from tests.histories.places import PLACES, gated
from tests.histories.world import World
from tests.majors import binaries

WORKERS = 4
# In so many histories every place has stopped somebody, or the gates do not work.
ENOUGH = 500


class Run:
    """Histories taken from one list by several worlds, and what came of them."""

    def __init__(self, numbers: list[int], seed: int, *, broken: bool) -> None:
        self.seed = seed
        self.broken = broken
        self.postgres = 0
        self.histories = 0
        self.tally: Counter[str] = Counter()
        self.stops: Counter[str] = Counter(dict.fromkeys((place.name for place in PLACES), 0))
        self.faults: dict[int, list[str]] = {}
        self.errors: dict[int, str] = {}
        self.moves: dict[int, list[str]] = {}
        self._numbers: Iterator[int] = iter(numbers)

    async def work(self, dsn: str) -> None:
        """Makes histories in one database until there are none left."""
        async with World(dsn, broken=self.broken) as world:
            self.postgres = world.control.info.server_version // 10_000
            for number in self._numbers:
                if self.broken and self.faults:
                    break
                history = History(world, self.seed, number)
                try:
                    await history.run()
                    self._note(number, history.record.faults + await oracle.judge(world.control, history.name))
                except Exception as error:  # noqa: BLE001 - the moves that led to it are worth more than a traceback
                    self.errors[number] = f"{type(error).__name__}: {error}"
                    await world.abandon()
                self.histories += 1
                self.moves[number] = history.record.moves
                self.tally += history.record.tally
            for name, faults in (await oracle.overtaken(world.control)).items():
                self._note(int(name[1:]), faults)
            row = await (await world.control.execute(b"SELECT count(*) FROM outbox.job")).fetchone()
            self.tally["jobs"] += row[0] if row else 0
            self.tally += world.tally
            self.stops += world.stops

    def _note(self, number: int, faults: list[str]) -> None:
        if faults:
            self.faults.setdefault(number, []).extend(faults)

    def dead_places(self) -> list[str]:
        """Places where nobody ever stopped, though there were enough histories."""
        return [place.name for place in PLACES if not self.stops[place.name] and self.histories >= ENOUGH]


async def run(postgres: Postgres, run_: Run, workers: int) -> None:
    """Runs all histories."""
    dsns = [postgres.create_database(f"histories_{n}") for n in range(workers)]
    for dsn in dsns:
        await migrate(dsn)
    async with asyncio.TaskGroup() as group:
        for dsn in dsns:
            group.create_task(run_.work(dsn))


def main() -> int:
    """Runs, prints what was found, and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", type=int, default=None, help="one history, told move by move")
    major = os.environ.get("RELAY_TEST_POSTGRES", "embedded")
    parser.add_argument("--postgres", default=major, help="a major; else RELAY_TEST_POSTGRES, or the embedded one")
    parser.add_argument("--broken", action="store_true", help="both statements of a settle in one snapshot")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(10**6)
    numbers = list(range(arguments.count)) if arguments.only is None else [arguments.only]
    print(f"seed {seed}", flush=True)
    # In this process alone.
    SQL.update(gated(SQL))
    outcome = Run(numbers, seed, broken=arguments.broken)
    started_s = time.monotonic()
    with (
        Nest() as nest,
        Postgres(nest, binaries=binaries(arguments.postgres), options={"fsync": "off"}, tcp=True) as postgres,
    ):
        asyncio.run(run(postgres, outcome, min(WORKERS, len(numbers))))
    return report(outcome, time.monotonic() - started_s, told=arguments.only is not None, as_json=arguments.json)


def report(run_: Run, took_s: float, *, told: bool, as_json: bool) -> int:
    """Prints figures and faults; the exit code."""
    failed = {**{number: [error] for number, error in run_.errors.items()}, **run_.faults}
    for number, faults in sorted(failed.items())[:20]:
        what = "the harness failed" if number in run_.errors else "NOT HELD"
        print(f"{what} in history {number} (again with --seed {run_.seed} --only {number}):")
        for line in (run_.moves[number] if told else []) + faults:
            print(f"  {line}")
    dead = run_.dead_places()
    for name in dead:
        print(f"nobody ever stopped at {name!r}")
    for name, stops in run_.stops.items():
        print(f"{stops:8} stopped at {name}")
    figures = {"histories": run_.histories, "failed": len(run_.faults), "errors": len(run_.errors), **run_.tally}
    found = ", ".join(f"{value} {name}" for name, value in figures.items())
    print(f"PostgreSQL {run_.postgres}: {found} in {took_s:.0f} s")
    if as_json:
        of = {"seed": run_.seed, "broken": run_.broken, "postgresql": run_.postgres}
        print(json.dumps({**of, **figures, "stops": run_.stops}))
    as_expected = bool(run_.faults) is run_.broken
    return 0 if as_expected and not dead and not run_.errors else 1


if __name__ == "__main__":
    sys.exit(main())
