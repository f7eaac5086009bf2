"""`make bench`: the relay beside the textbook design, bare loops that only post, and its peers, in one run.

CPU seconds come from the operating system, for the client and for PostgreSQL apart: on a machine that others
use too, time by the clock says little. Read the ratios; the figures belong to the machine they were made on.
`--quick` does less of each and leaves out what `tests.bench.long` has: large payloads, load, replicas, memory.
"""

import argparse
import asyncio
import json
import os
import platform

from relay.demo.nest import Nest
from relay.demo.postgres import Postgres
from tests.bench import deliveries, flat, idle, long
from tests.bench.measure import Bench
from tests.bench.rig import receiver
from tests.bench.sides import PEERS, RELAY, watched

ROUNDS = 3
PAIRS = 5
QUICK_PAIRS = 3
SECONDS = 4.0


def latencies(nest: Nest, postgres: Postgres, url: str, probes: int, rest_s: float) -> dict[str, object]:
    """The relay and its peers, each alone and with nothing else to do; and what the relay uses then."""
    found = [asyncio.run(idle.latency(nest, postgres, side, probes)) for side in (RELAY, *PEERS)]
    print(f"\nfrom commit to receiver, one job at a time, {probes} of each:")
    print(f"{'':24}{'p50 ms':>8}{'p90 ms':>8}{'p99 ms':>8}")
    for each in found:
        print(f"{each.side:24}{each.median:8.2f}{each.percentile(90):8.2f}{each.percentile(99):8.2f}")
    relay, *peers = found
    rest = idle.rest(nest, postgres, RELAY, url, rest_s)
    print(f"an idle replica, each minute: {rest.statements:.0f} statements, {rest.client_ms:.0f} ms of its CPU, "
          f"{rest.postgres_ms:.0f} ms of PostgreSQL's", flush=True)  # fmt: skip
    return {
        "idle_latency_ms": {"p50": round(relay.median, 2), "p99": round(relay.percentile(99), 2)},
        "idle_latency_vs_best_peer": {
            "p50": round(relay.median / min(peer.median for peer in peers), 2),
            "p99": round(relay.percentile(99) / min(peer.percentile(99) for peer in peers), 2),
        },
        "idle_statements_per_minute": round(rest.statements),
    }


def flatness(postgres: Postgres, *, quick: bool) -> dict[str, object]:
    """What a claim touches in a large table, beside a small one."""
    sizes = flat.QUICK if quick else flat.FULL
    found = flat.flatness(postgres, sizes)
    print(f"\npages a claim of 64 touches, whatever the planner knows, with {sum(sizes.values()):,} jobs in trouble:")
    flat.table(found)
    return {"claim_buffers_flatness": {name: round(large / small, 2) for name, (small, large) in found.items()}}


def main() -> None:
    """Runs everything and prints the tables; the last line is JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=None, help="of the fastest side; 20,000, or 3,000")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    quick, jobs = arguments.quick, arguments.jobs or (3_000 if arguments.quick else 20_000)
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, fsync on")
    with Nest() as nest, watched(nest) as postgres, receiver(0) as url:
        bench = Bench(nest, postgres, url)
        found = deliveries.deliveries(
            bench, jobs, 500, pairs=QUICK_PAIRS if quick else PAIRS, rounds=1 if quick else ROUNDS
        )
        deliveries.table(found, 500)
        report = deliveries.ratios(found)
        report |= latencies(nest, postgres, url, 60 if quick else 1_000, 6 if quick else 60)
        report |= flatness(postgres, quick=quick)
        if not quick:
            deliveries.table(deliveries.deliveries(bench, jobs // 4, 4096, pairs=QUICK_PAIRS, rounds=1), 4096)
            report |= long.beside(nest, postgres, bench, jobs, SECONDS)
    if not quick:
        long.alone(jobs, SECONDS)
    if arguments.json:
        print(json.dumps(report))


if __name__ == "__main__":
    main()
