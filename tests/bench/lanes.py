"""`make lanes`: what order costs. A burst put aside, held and hot lanes beside others, one busy entity, strict enqueue.

Read the ratios; the figures belong to the machine they were made on. Exit code 1 when a count or a ratio is worse
than it may be on any machine. `--quick` does less of each.
"""

import argparse
import asyncio
import json
import os
import platform
import sys

from relay.demo.nest import Nest
from relay.demo.postgres import Postgres
from tests.bench import burst, enqueue, latency
from tests.bench.rig import Rig


class Report:
    """Tables as they come, the figures for the last line, and what was worse than it may be."""

    def __init__(self) -> None:
        self.figures: dict[str, float] = {}
        self.faults: list[str] = []

    def note(self, name: str, value: float, *, most: float | None = None, least: float | None = None) -> None:
        """Keeps a figure, and a fault when it is out of bounds."""
        self.figures[name] = round(value, 3)
        if most is not None and value > most:
            self.faults.append(f"{name} is {value:.2f}, more than {most:g}")
        if least is not None and value < least:
            self.faults.append(f"{name} is {value:.2f}, less than {least:g}")

    def burst(self, rig: Rig, jobs: int) -> None:
        """Section (a)."""
        found = asyncio.run(burst.put_aside(rig, jobs))
        print(f"\nburst of {found.jobs} jobs of one entity, {found.others} of others in it, {burst.SLOTS} slots")
        print(f"  {found.rounds} claims (log2 + N/4,096 is {found.bound}), {found.us_per_job:.1f} µs a job")
        # The last claim may see that nothing is left.
        self.note("burst_claims", found.rounds, most=found.bound + 2)
        self.note("burst_us_per_job", found.us_per_job)
        self.note("burst_others_undelivered", jobs // burst.EVERY - found.others, most=0)

    def held(self, rig: Rig, seconds: float) -> None:
        """Section (b)."""
        free, held = (latency.beside_a_held_lane(rig, seconds, held=held) for held in (False, True))
        print(f"\nother entities while somebody holds the head of a lane with {latency.HELD_FOLLOWERS} followers")
        print(f"  {'':10}{'median ms':>10}{'p95 ms':>10}")
        print(f"  {'not held':10}{free.median_ms:10.1f}{free.p95_ms:10.1f}")
        print(f"  {'held':10}{held.median_ms:10.1f}{held.p95_ms:10.1f}")
        print(f"  {'ratio':10}{held.median_ms / free.median_ms:10.2f}{held.p95_ms / free.p95_ms:10.2f}")
        self.note("held_lane_ratio", held.median_ms / free.median_ms, most=5)
        self.note("held_lane_p95_ratio", held.p95_ms / free.p95_ms)

    def hot(self, rig: Rig, probes: int) -> None:
        """Section (c)."""
        quiet, busy = (latency.beside_hot_lanes(rig, probes, lanes=lanes) for lanes in (0, latency.HOT_SLOTS))
        bound = latency.DELIVERIES_BOUND
        print(f"\na fresh entity beside {latency.HOT_SLOTS} hot ones on {latency.HOT_SLOTS} slots, answers after 5 ms")
        print(f"  {'':10}{'median ms':>10}{'p95 ms':>10}{'deliveries before it, most':>28}")
        for name, waits in (("alone", quiet), ("beside hot", busy)):
            print(f"  {name:10}{waits.median_ms:10.1f}{waits.p95_ms:10.1f}{max(waits.deliveries):28}")
        ratio = busy.median_ms / quiet.median_ms
        print(f"  ratio of medians {ratio:.1f}; the chain limit's bound is {bound} deliveries")
        self.note("hot_lanes_ratio", ratio)
        self.note("hot_lanes_deliveries_before", max(busy.deliveries), most=1.5 * bound)

    def entity(self, rig: Rig, jobs: int) -> None:
        """Section (d)."""
        print("\none entity, one job after the other")
        print(f"  {'answers':>8}{'HTTP ms':>9}{'settle ms':>11}{'bound/s':>9}{'jobs/s':>8}{'of bound':>10}")
        for delay_ms, number in ((0, jobs), (20, jobs // 4)):
            found = latency.one_hot_entity(rig, delay_ms, number)
            share = found.jobs_per_s / found.bound_per_s
            print(f"  {delay_ms:5} ms{found.http_ms:9.2f}{found.settle_ms:11.2f}{found.bound_per_s:9.0f}"
                  f"{found.jobs_per_s:8.0f}{share:10.2f}")  # fmt: skip
            self.note(f"hot_entity_{delay_ms}ms_jobs_per_s", found.jobs_per_s)
            self.note(f"hot_entity_{delay_ms}ms_of_bound", share, least=0.3)

    def enqueue(self, rig: Rig, rows: int) -> None:
        """Section (e), order."""
        print("\nµs a row, each row committed by itself")
        print(f"  {'producers':>9} {'entities':10} {'commit':10}{'INSERT':>8}{'enqueue_ordered':>17}{'ratio':>7}")
        for each in enqueue.strict_order(rig, rows):
            ratio = each.ordered_us / each.plain_us
            commit = "on disk" if each.durable else "not waited"
            print(f"  {each.producers:9} {each.entities:10} {commit:10}{each.plain_us:8.0f}{each.ordered_us:17.0f}"
                  f"{ratio:7.2f}")  # fmt: skip
            # Several of one entity wait for each other's commit: that is what they ask for.
            bounded = each.producers == 1 or each.entities == "different"
            name = f"ordered_ratio_{each.producers}_{each.entities}{'_durable' if each.durable else ''}"
            self.note(name, ratio, most=5 if bounded else None)

    def fan_out(self, rig: Rig, events: int) -> None:
        """Section (e), fan-out."""
        print("\nµs of an event, many in one statement")
        print(f"  {'subscribers':>11}{'event':>9}{'job':>7}{'to direct':>11}")
        direct, *routed = enqueue.fan_out(rig, events)
        print(f"  {'direct':>11}{direct.us_per_event:9.0f}{direct.us_per_job:7.0f}")
        for each in routed:
            ratio = each.us_per_job / direct.us_per_job
            print(f"  {each.subscribers:11}{each.us_per_event:9.0f}{each.us_per_job:7.0f}{ratio:11.2f}")
            self.note(f"fan_out_{each.subscribers}_job_ratio", ratio, most=10)


def main() -> int:
    """Measures everything; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="less of each, in under a minute")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    quick, report = arguments.quick, Report()
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    with Nest() as nest, Postgres(nest, tcp=True) as postgres:
        rig = Rig(nest, postgres)
        report.burst(rig, 40_000 if quick else 200_000)
        report.held(rig, 1.5 if quick else 5.0)
        report.hot(rig, 30 if quick else 100)
        report.entity(rig, 400 if quick else 2_000)
        report.enqueue(rig, 80 if quick else 400)
        report.fan_out(rig, 200 if quick else 2_000)
    for fault in report.faults:
        print(f"lanes: {fault}", file=sys.stderr)
    if arguments.json:
        print(json.dumps(report.figures))
    return 1 if report.faults else 0


if __name__ == "__main__":
    sys.exit(main())
