"""What a benchmark may not fall below, whatever the machine: reads what `make bench JSON=1` prints, and repeats it.

Ratios only. Few jobs are enough to notice a design that broke, not a cost that crept up.
"""

import json
import sys

FLOORS = {"pg_cpu_vs_textbook": 4.0, "pg_cpu_vs_textbook_ordered": 3.0}


def faults(figures: dict[str, float]) -> list[str]:
    """A sentence for each figure that is worse than it may be; KeyError when one is missing."""
    found = [f"{name} is {figures[name]}, less than {floor}" for name, floor in FLOORS.items() if figures[name] < floor]
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
    except (ValueError, KeyError, TypeError) as error:
        found = [f"the last line is not the benchmark's JSON object ({error!r}): {line.strip()[:200]}"]
    for fault in found:
        print(f"bench: {fault}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
