"""The gate passes what is measured today, and names what is worse."""

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.bench.deliveries import paired
from tests.bench.gate import BASELINE, FLATNESS_CEILING, FLOORS, PEERS_FLOOR, faults
from tests.bench.rig import ROOT

GOOD: dict[str, Any] = {
    **FLOORS,
    "pairs": 3,
    "vs_peers": {"pgqueuer": PEERS_FLOOR},
    **{name: usual for name, (usual, _) in BASELINE.items()},
    "claim_buffers_flatness": {"a backlog": FLATNESS_CEILING},
    "idle_latency_ms": {"p50": 2.0, "p99": 9.0},
    "duplicates": 0,
}


def test_figures_at_the_bounds_pass() -> None:
    assert faults(GOOD) == []


@pytest.mark.parametrize("name", FLOORS)
def test_a_ratio_below_its_floor_is_named(name: str) -> None:
    [fault] = faults({**GOOD, name: FLOORS[name] - 0.01})
    assert fault.startswith(f"{name} is ")


@pytest.mark.parametrize("name", BASELINE)
def test_a_count_far_above_its_baseline_is_named(name: str) -> None:
    usual, most = BASELINE[name]
    [fault] = faults({**GOOD, name: usual * most * 1.01})
    assert fault.startswith(f"{name} is ")


@pytest.mark.parametrize(
    ("figure", "says"),
    [
        ({"vs_peers": {"pgqueuer": 2.0, "procrastinate": 1.4}}, "procrastinate"),
        ({"claim_buffers_flatness": {"a backlog": 1.1, "lanes in backoff": 1.6}}, "lanes in backoff"),
        ({"pairs": 2}, "2 times, less than 3"),
        ({"idle_latency_ms": {"p50": 2.0}}, "no p50 and p99"),
        ({"duplicates": 1}, "1 deliveries were made twice"),
    ],
)
def test_what_is_worse_is_named(figure: dict[str, Any], says: str) -> None:
    [fault] = faults({**GOOD, **figure})
    assert says in fault


@pytest.mark.parametrize("line", ["", "not JSON", "[]", json.dumps({k: v for k, v in GOOD.items() if k != "pairs"})])
def test_a_benchmark_that_ended_without_its_figures_fails(line: str) -> None:
    assert judge(f"a table\n{line}") == 1


def test_what_the_gate_reads_it_repeats() -> None:
    assert judge(f"a table\n{json.dumps(GOOD)}\n") == 0


def judge(output: str) -> int:
    """The gate's exit code; it has to repeat what it reads."""
    gate = [sys.executable, "-m", "tests.bench.gate"]
    ended = subprocess.run(gate, input=output, capture_output=True, text=True, cwd=ROOT, check=False)
    assert ended.stdout == output
    assert bool(ended.stderr) == bool(ended.returncode)
    assert "Traceback" not in ended.stderr
    return ended.returncode


def test_a_machine_that_slows_down_steadily_does_not_change_the_ratio() -> None:
    bare_ms, relay_ms = [1.0, 1.2, 1.4, 1.6], [1.1, 1.3, 1.5]
    assert paired(bare_ms, relay_ms) == pytest.approx([1.0, 1.0, 1.0])


def test_each_measurement_is_compared_with_its_own_neighbours() -> None:
    assert paired([1.0, 1.0, 2.0, 2.0], [1.0, 1.0, 1.0]) == pytest.approx([1.0, 1.5, 2.0])
