"""How much memory a replica takes: idle, beside a backlog, and with as many of the largest payloads as it may hold."""

import json
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path

from relay.demo.nest import Nest
from relay.demo.postgres import Postgres
from tests.bench.rig import receiver
from tests.bench.sides import RELAY, SLOTS, Stage

MIB = 1 << 20
BUDGETS_MIB = (16, 64, 256)
_LATE_MS = 1_500


@dataclass(frozen=True)
class Size:
    """Resident memory in MiB: after start, and the most it came to."""

    case: str
    idle_mib: float
    peak_mib: float


def _rss_mib(pid: int, name: str) -> float:
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(name)]
    return int(line.split()[1]) / 1024


def _size(nest: Nest, postgres: Postgres, case: str, jobs: int, payload_bytes: int, budget_mib: int) -> Size:
    settings = {"replica": {"payload_budget_bytes": budget_mib * MIB}}
    stage = Stage(nest, postgres, replace(RELAY, environment={"BENCH_SETTINGS": json.dumps(settings)}))
    with (
        receiver(_LATE_MS if payload_bytes == MIB else 0) as url,
        stage.running(url, 2 * BUDGETS_MIB[-1] if payload_bytes == MIB else SLOTS, warm_up=1) as process,
    ):
        idle_mib = _rss_mib(process.pid, "VmRSS")
        process.send_signal(signal.SIGSTOP)
        stage.obey("insert", jobs, payload_bytes)
        process.send_signal(signal.SIGCONT)
        time.sleep(6)
        return Size(case, idle_mib, _rss_mib(process.pid, "VmHWM"))


def sizes(nest: Nest, postgres: Postgres) -> list[Size]:
    """Backlogs of small jobs, and payloads of 1 MiB under several budgets."""
    backlogs = [_size(nest, postgres, f"{jobs:,} jobs of 500 bytes due", jobs, 500, 256) for jobs in (1_000, 100_000)]
    return backlogs + [
        _size(nest, postgres, f"payloads of 1 MiB, a budget of {budget_mib} MiB", 2 * budget_mib, MIB, budget_mib)
        for budget_mib in BUDGETS_MIB
    ]
