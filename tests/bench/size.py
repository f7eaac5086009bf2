"""How much memory a replica takes: idle, beside a backlog, and with as many of the largest payloads as it may hold."""

import json
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from relay.demo.nest import Nest
from relay.demo.postgres import Postgres
from tests.bench.rig import receiver
from tests.bench.sides import RELAY, SLOTS, Stage

MIB = 1 << 20
BUDGETS_MIB = (16, 64, 256)
_LATE_MS = 1_500
_WATCHED_S = 5.0


@dataclass(frozen=True)
class Size:
    """Resident memory in MiB: after start, and the most it came to."""

    case: str
    idle_mib: float
    peak_mib: float


def _rss_mib(pid: int, name: str) -> float:
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(name)]
    return int(line.split()[1]) / 1024


def _size(nest: Nest, postgres: Postgres, case: "_Case") -> Size:
    settings = {"replica": {"payload_budget_bytes": case.budget_mib * MIB}}
    stage = Stage(nest, postgres, replace(RELAY, environment={"BENCH_SETTINGS": json.dumps(settings)}))
    with receiver(case.late_ms) as url, stage.running(url, case.in_flight, warm_up=1) as process:
        idle_mib = _rss_mib(process.pid, "VmRSS")
        process.send_signal(signal.SIGSTOP)
        stage.obey("insert", case.jobs, case.payload_bytes)
        process.send_signal(signal.SIGCONT)
        time.sleep(_WATCHED_S)
        peak_mib = _rss_mib(process.pid, "VmHWM")
        with stage.connect() as connection:
            connection.execute("TRUNCATE outbox.job")  # it is not to deliver the rest before it ends
    return Size(case.name, idle_mib, peak_mib)


@dataclass(frozen=True)
class _Case:
    name: str
    jobs: int
    payload_bytes: int = 500
    in_flight: int = SLOTS
    budget_mib: int = 256
    late_ms: int = 0


_CASES = (
    *(_Case(f"{jobs:,} jobs of 500 bytes due", jobs) for jobs in (1_000, 100_000)),
    *(
        _Case(f"{in_flight:,} in flight, 500 bytes each", 4 * in_flight, in_flight=in_flight, late_ms=_LATE_MS)
        for in_flight in (64, 256, 1_024)
    ),
    *(
        _Case(f"256 in flight, {kib} KiB each", 1_024, kib * 1_024, in_flight=256, late_ms=_LATE_MS)
        for kib in (4, 64)
    ),
    *(
        _Case(
            f"1 MiB each, a budget of {budget} MiB", 2 * budget, MIB,
            in_flight=2 * BUDGETS_MIB[-1], budget_mib=budget, late_ms=_LATE_MS,
        )
        for budget in BUDGETS_MIB
    ),
)  # fmt: skip


def sizes(nest: Nest, postgres: Postgres) -> Iterator[Size]:
    """Backlogs of small jobs; many in flight; larger payloads, and those of 1 MiB under several budgets."""
    for case in _CASES:
        yield _size(nest, postgres, case)
