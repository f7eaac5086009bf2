"""`python -m tests.bench.profile [--lanes 20|each] [--jobs 5000]`: where the CPU time of a replica goes.

cProfile by CPU time, from the moment a backlog is let go until it is delivered. It makes every call dearer, small
ones most, so read the shares and not the times. What is built in counts for the module that calls it; a coroutine
that goes on after a wait counts as called again.
"""

import argparse
import pstats
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path

from relay.demo.nest import Nest
from tests.bench.rig import receiver
from tests.bench.sides import RELAY, Stage, watched

# The first part whose word is in a file's path has it.
PARTS = {
    "psycopg, and its pool": ("psycopg",),
    "the HTTP client": ("relay/http/", "httptools", "relay/sender"),
    "asyncio": ("asyncio/", "selectors.py"),
    "claim": ("relay/claim", "relay/rows", "relay/store"),
    "settle": ("relay/settle",),
    "slots and gates": ("relay/dispatch", "relay/line", "relay/rules/gate"),
    "headers, signature, outcome": ("relay/deliver", "relay/rules/", "relay/model", "hmac", "base64"),
    "metrics and log": ("relay/telemetry", "opentelemetry", "logging"),
    "transactions": ("relay/database",),
}
_TOP = 15
Function = tuple[str, int, str]


def part(path: str) -> str:
    """The part of the relay that a file belongs to."""
    return next((name for name, words in PARTS.items() if any(word in path for word in words)), "the rest")


def shares(stats: pstats.Stats) -> Counter[str]:
    """Seconds of each part."""
    seconds: Counter[str] = Counter()
    for (path, _, _), (_, _, own_s, _, callers) in stats.stats.items():  # type: ignore[attr-defined]
        if path == "~":
            for (caller, _, _), (_, _, called_s, _) in callers.items():
                seconds[part(caller)] += called_s
        else:
            seconds[part(path)] += own_s
    return seconds


def profile(lanes: str, jobs: int) -> pstats.Stats:
    """Delivers `jobs` of so many lanes; what was recorded."""
    with Nest() as nest, watched(nest) as postgres, receiver(0) as url:
        path = nest.path / "profile"
        environment = {"BENCH_LANES": lanes, "BENCH_PROGRAM": "tests.bench.profiled", "BENCH_PROFILE": str(path)}
        stage = Stage(nest, postgres, replace(RELAY, environment=environment))
        with stage.connect() as connection, stage.running(url) as process:
            process.send_signal(signal.SIGSTOP)
            stage.obey("insert", jobs, 500)
            connection.execute("ANALYZE")
            process.send_signal(signal.SIGUSR1)
            process.send_signal(signal.SIGCONT)
            stage.drained(connection, process)
        return pstats.Stats(str(path))


def main() -> None:
    """Prints the shares of each part, and the functions that take longest."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lanes", default="", help="how many entities; each: one a job; without: no order")
    parser.add_argument("--jobs", type=int, default=5_000)
    arguments = parser.parse_args()
    stats = profile(arguments.lanes, arguments.jobs)
    seconds = shares(stats)
    print(f"\n{arguments.jobs:,} jobs, {arguments.lanes or 'no'} lanes: {seconds.total():.2f} s of CPU time, profiled")
    for name, spent_s in seconds.most_common():
        print(f"  {name:30}{spent_s / seconds.total():6.0%}{1e6 * spent_s / arguments.jobs:8.0f} µs a job")
    print("\nfunctions by their own time:")
    own = sorted(stats.stats.items(), key=lambda each: -each[1][2])[:_TOP]  # type: ignore[attr-defined]
    for (path, line, name), (_, calls, own_s, _, _) in own:
        where = f"{Path(*Path(path).parts[-2:])}:{line}" if path != "~" else ""
        print(f"  {own_s / seconds.total():6.1%}{calls / arguments.jobs:8.2f} calls a job  {name} {where}")


if __name__ == "__main__":
    main()
