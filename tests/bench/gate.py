"""What a benchmark may not fall below, whatever the machine: reads what `make bench JSON=1` prints, and repeats it.

Ratios and counts only. Ratios of CPU time are held to what is far from noise, the one to the bare loop as the median
of pairs measured side by side (between 0.95 and 1.15 on a quiet machine; PostgreSQL is a third process on its two
cores, so a busy one slows the relay more than the loop); counts to the baseline below, which changes only together with
what it counts.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

FLOORS = {"pg_cpu_vs_textbook": 4.0, "pg_cpu_vs_textbook_ordered": 3.0, "deliveries_per_cpu_s_vs_bare": 0.65}
PAIRS_FLOOR = 3
PEERS_FLOOR = 1.5
FLATNESS_CEILING = 1.5
# Measured, and how much more is let pass: what depends on how full batches are varies with the machine.
BASELINE = {
    "wal_bytes_per_job": (630, 1.3),
    "buffers_per_job": (20.2, 1.2),
    "dead_tuples_per_job": (2.05, 1.1),
    "statements_per_job": (0.15, 2.5),
}


def faults(figures: Mapping[str, Any]) -> list[str]:
    """A sentence for each figure that is worse than it may be; KeyError when one is missing."""
    found = [f"{name} is {figures[name]}, less than {floor}" for name, floor in FLOORS.items() if figures[name] < floor]
    found += [
        f"the relay delivers {ratio} times what {peer} does with as much CPU, less than {PEERS_FLOOR}"
        for peer, ratio in figures["vs_peers"].items()
        if ratio < PEERS_FLOOR
    ]
    found += [
        f"{name} is {figures[name]}, more than {most:g} times the baseline of {usual}"
        for name, (usual, most) in BASELINE.items()
        if figures[name] > most * usual
    ]
    found += [
        f"a claim touches {ratio} times as many pages in this case: {case}; more than {FLATNESS_CEILING}"
        for case, ratio in figures["claim_buffers_flatness"].items()
        if ratio > FLATNESS_CEILING
    ]
    if figures["pairs"] < PAIRS_FLOOR:
        found.append(f"the relay was measured beside the bare loop {figures['pairs']} times, less than {PAIRS_FLOOR}")
    if not {"p50", "p99"} <= figures["idle_latency_ms"].keys():
        found.append("idle_latency_ms has no p50 and p99")
    if figures["duplicates"]:
        found.append(f"{figures['duplicates']} deliveries were made twice, and nothing was killed")
    return found


def main() -> int:
    """Judges the last line of standard input; the exit code is 1 for a fault."""
    line = "nothing"
    for line in sys.stdin:
        print(line, end="", flush=True)
    try:
        found = faults(json.loads(line))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        found = [f"the last line is not the benchmark's JSON object ({error!r}): {line.strip()[:200]}"]
    for fault in found:
        print(f"bench: {fault}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
