"""`make fuzz CASES=200000 SEED=1`: whatever comes in from outside, drawn by hypothesis from a seed.

Each target in TARGETS says in its own file what must hold for every case. The first case that breaks it is made as
small as it gets, and printed; exit code 1. `--only TARGET` gives all cases to one target.
"""

import argparse
import json
import math
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from hypothesis import HealthCheck, Phase, seed, settings

from tests.fuzz import answers, api, arguments, configuration, receivers, rows, rules
from tests.fuzz.case import SEEN, Check


@dataclass(frozen=True)
class Target:
    """Its part of all cases, what makes ready what they need, and how many cases one drawn value makes."""

    share: float
    opened: Callable[[], AbstractContextManager[Check]]
    each: int = 1


TARGETS = {
    "rules": Target(0.44, lambda: nullcontext(rules.check), each=rules.EACH),
    "answers": Target(0.42, lambda: nullcontext(answers.check), each=answers.WAYS),
    "configuration": Target(0.05, configuration.opened),
    "receivers": Target(0.03, receivers.opened),
    "rows": Target(0.03, rows.opened),
    "api": Target(0.02, api.opened),
    "arguments": Target(0.01, arguments.opened),
}


def run(target: Target, draws: int, first_seed: int) -> str | None:
    """Draws so many values; what broke, None when nothing did."""
    limits = settings(
        max_examples=draws,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
    )
    try:
        with target.opened() as check:
            limits(seed(first_seed)(check))()
    except Exception:  # noqa: BLE001 - the smallest case, with its notes
        return traceback.format_exc(limit=-8)[-6_000:]
    return None


def main() -> int:
    """Every target in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=sorted(TARGETS))
    parser.add_argument("--json", action="store_true", help="the last line is a JSON object")
    asked = parser.parse_args()
    report: dict[str, object] = {"seed": asked.seed, "cases": 0}
    broken, drawn = [], 0
    for name, target in TARGETS.items():
        if asked.only not in (None, name):
            continue
        began_s = time.monotonic()
        SEEN.clear()
        share = 1 if asked.only else target.share
        fault = run(target, math.ceil(asked.cases * share / target.each), asked.seed)
        took_s = time.monotonic() - began_s
        cases = SEEN.pop("cases", 0)
        drawn += cases
        came_to = ", ".join(f"{count} {what}" for what, count in sorted(SEEN.items()))
        print(f"{name:14} {cases:7} cases in {took_s:5.0f} s: {came_to or 'all held'}", flush=True)
        report[name] = {"cases": cases, "seconds": round(took_s, 1), **SEEN}
        if fault is not None:
            broken.append(name)
            print(fault, flush=True)
    print(f"{drawn} cases, broken: {', '.join(broken) or 'none'}")
    if asked.json:
        print(json.dumps({**report, "cases": drawn, "broken": broken}))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
