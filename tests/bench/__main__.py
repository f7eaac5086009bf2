"""`make bench`: the relay beside the textbook design, bare loops that only post, and its peers, in one run.

CPU seconds come from the operating system, for the client and for PostgreSQL apart: on a machine that others
use too, time by the clock says little. Read the ratios; the figures belong to the machine they were made on.
`--quick` does less of each and leaves out what takes minutes: large payloads, load, replicas, memory.
"""

import argparse
import asyncio
import json
import os
import platform

from relay.demo.nest import Nest
from relay.demo.postgres import Postgres
from tests.bench import flat, idle, load, replicas, size
from tests.bench.measure import Bench, Figures
from tests.bench.rig import receiver
from tests.bench.sides import ONE_A_LANE, PEERS, RELAY, SLOTS, TEXTBOOK, TWENTY_LANES, watched

# A slow side needs fewer jobs for as many seconds of CPU time.
SHARES = {"textbook": 0.2, "relay, 20 lanes": 0.4, "pgqueuer": 0.5, "faststream-outbox": 0.3, "procrastinate": 0.1}
ROUNDS = 3


def deliveries(bench: Bench, jobs: int, payload_bytes: int, *, rounds: int) -> dict[str, Figures]:
    """Every side, by turns; of its rounds the one that took the median of the client's time."""
    turns = [
        [
            bench.bare("aiohttp", jobs, payload_bytes),
            *(
                bench.deliveries(side, int(jobs * SHARES.get(side.name, 1)), payload_bytes)
                for side in (RELAY, ONE_A_LANE, TWENTY_LANES, TEXTBOOK, *PEERS)
            ),
            bench.bare("sender", jobs, payload_bytes),
        ]
        for _ in range(rounds)
    ]
    by_side = [sorted(each, key=lambda figures: figures.client_ms)[rounds // 2] for each in zip(*turns, strict=True)]
    return {each.side: each for each in by_side}


def print_deliveries(found: dict[str, Figures], payload_bytes: int) -> None:
    """The table, each side beside the bare loop and the textbook."""
    bare, textbook = found["bare aiohttp"], found[TEXTBOOK.name]
    print(f"\npayloads of {payload_bytes} bytes, {SLOTS} in flight, for each job:")
    print(f"{'':24}{'jobs':>7}{'jobs/s':>8}{'client ms':>11}{'bare/it':>9}{'PG ms':>8}{'textbook/it':>13}"
          f"{'statements':>12}{'pages':>7}{'WAL B':>7}{'dead':>6}{'twice':>7}")  # fmt: skip
    for each in found.values():
        print(f"{each.side:24}{each.jobs:7}{each.jobs / each.wall_s:8.0f}{each.client_ms:11.3f}"
              f"{bare.client_ms / each.client_ms:9.2f}", end="")  # fmt: skip
        if each.postgres_s:
            print(f"{each.postgres_ms:8.3f}{textbook.postgres_ms / each.postgres_ms:13.1f}"
                  f"{each.statements / each.jobs:12.2f}{each.buffers / each.jobs:7.0f}{each.wal_bytes / each.jobs:7.0f}"
                  f"{each.dead / each.jobs:6.2f}{each.duplicates:7}", end="")  # fmt: skip
        print(flush=True)


def ratios(found: dict[str, Figures]) -> dict[str, object]:
    """What the last line says of deliveries."""
    relay, textbook = found[RELAY.name], found[TEXTBOOK.name]
    return {
        "pg_cpu_vs_textbook": round(textbook.postgres_ms / relay.postgres_ms, 2),
        "pg_cpu_vs_textbook_ordered": round(textbook.postgres_ms / found[ONE_A_LANE.name].postgres_ms, 2),
        "pg_cpu_vs_textbook_20_lanes": round(textbook.postgres_ms / found[TWENTY_LANES.name].postgres_ms, 2),
        "deliveries_per_cpu_s_vs_bare": round(found["bare aiohttp"].client_ms / relay.client_ms, 2),
        "deliveries_per_cpu_s_vs_own_client": round(found["bare sender"].client_ms / relay.client_ms, 2),
        "vs_peers": {peer.name: round(found[peer.name].client_ms / relay.client_ms, 2) for peer in PEERS},
        "wal_bytes_per_job": round(relay.wal_bytes / relay.jobs),
        "statements_per_job": round(relay.statements / relay.jobs, 3),
        "buffers_per_job": round(relay.buffers / relay.jobs, 1),
        "dead_tuples_per_job": round(relay.dead / relay.jobs, 2),
        "duplicates": sum(each.duplicates for each in found.values()),
    }


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


def long(nest: Nest, postgres: Postgres, bench: Bench, jobs: int) -> dict[str, object]:
    """Old backlogs, load, slow receivers and memory."""
    old = bench.deliveries(RELAY, jobs, 500, checkpoint=True)
    print(f"\nof a backlog older than the last checkpoint: {old.wal_bytes / old.jobs:.0f} bytes of WAL a job, since "
          "the first change of each page logs it whole")  # fmt: skip
    print("\nfrom commit to receiver under load:")
    print(f"{'':24}{'of most':>8}{'jobs/s':>8}{'p50 ms':>8}{'p99 ms':>8}{'p99.9 ms':>10}")
    for loaded in load.loaded(nest, postgres, 8):
        print(f"{loaded.way:24}{loaded.share:8.2f}{loaded.share * loaded.most_per_s:8.0f}{loaded.percentile(50):8.1f}"
              f"{loaded.percentile(99):8.1f}{loaded.percentile(99.9):10.1f}", flush=True)  # fmt: skip
    print(f"\nreceivers that take 100 ms:\n{'in flight':>10}{'jobs/s':>8}{'of ideal':>10}{'of a core':>11}")
    found = [load.waiting(nest, postgres, in_flight, 5) for in_flight in load.IN_FLIGHT]
    for each in found:
        print(f"{each.in_flight:10}{each.per_s:8.0f}{each.of_ideal:10.2f}{each.core:11.2f}", flush=True)
    print(f"\nresident memory of a replica in MiB:\n{'':44}{'idle':>6}{'most':>6}")
    for sized in size.sizes(nest, postgres):
        print(f"{sized.case:44}{sized.idle_mib:6.0f}{sized.peak_mib:6.0f}", flush=True)
    return {
        "wal_bytes_per_job_after_a_checkpoint": round(old.wal_bytes / old.jobs),
        "of_ideal_with_100_ms": {each.in_flight: round(each.of_ideal, 3) for each in found},
    }


def scale_out(jobs: int) -> None:
    """More and more replicas, and PostgreSQL on one core."""
    print(f"\nPostgreSQL on one core:\n{'replicas':>9}{'jobs/s':>8}{'their cores':>12}{'PG core':>9}{'PG ms':>7}"
          f"{'connections':>13}  where its sessions are")  # fmt: skip
    for number in replicas.REPLICAS:
        # A server of its own for each, or the garbage of one would be the next one's work.
        with Nest() as nest, watched(nest, core=0) as postgres:
            each = replicas.scaled(nest, postgres, number, jobs)
        waits = ", ".join(f"{name} {count / each.waits.total():.0%}" for name, count in each.waits.most_common(4))
        print(f"{each.replicas:9}{each.per_s:8.0f}{each.client_core:12.2f}{each.postgres_core:9.2f}"
              f"{each.postgres_ms:7.3f}{each.connections:13}  {waits}", flush=True)  # fmt: skip


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
        found = deliveries(bench, jobs, 500, rounds=1 if quick else ROUNDS)
        print_deliveries(found, 500)
        report = ratios(found)
        report |= latencies(nest, postgres, url, 60 if quick else 1_000, 6 if quick else 60)
        report |= flatness(postgres, quick=quick)
        if not quick:
            print_deliveries(deliveries(bench, jobs // 2, 4096, rounds=1), 4096)
            report |= long(nest, postgres, bench, jobs)
    if not quick:
        scale_out(jobs)
    if arguments.json:
        print(json.dumps(report))


if __name__ == "__main__":
    main()
