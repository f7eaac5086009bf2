import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.demo.processes import processes_in, wait_until

REQUIRED = {"committed", "delivered", "lost", "duplicates", "inversions", "dead", "retries", "killed_replicas"}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where the demo makes its private folder; open, since PostgreSQL may run as another user."""
    with tempfile.TemporaryDirectory(prefix="demo-test-") as name:
        Path(name).chmod(0o711)
        yield Path(name).resolve()


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "relay", "demo", *arguments],
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_the_demo_keeps_every_promise_and_says_so_in_its_last_line(folder: Path) -> None:
    with start(folder, "--seconds", "8", "--json") as demo:
        output, _ = demo.communicate()
    assert demo.returncode == 0, output
    summary = json.loads(output.splitlines()[-1])
    assert summary.keys() >= REQUIRED
    assert summary["latency_ms"].keys() == {"p50", "p99"}
    assert (summary["lost"], summary["inversions"], summary["unverified"], summary["phantoms"]) == (0, 0, 0, 0)
    assert (summary["dead"], summary["killed_replicas"]) == (1, 1)
    assert summary["committed"] == summary["delivered"] + summary["dead"] + summary["waiting_behind_dead"]
    assert summary["retries"] > 0
    assert processes_in(folder) == []
    assert list(folder.iterdir()) == []


def interrupt_in_mid_run(folder: Path, number: signal.Signals) -> int:
    """Send the signal when PostgreSQL, the receiver and both replicas are at work; return the exit code."""
    with start(folder, "--seconds", "60") as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "committed" in line:
                break
        assert len(processes_in(folder)) >= 4
        demo.send_signal(number)
        demo.communicate()
    return demo.returncode


def test_nothing_is_left_of_the_demo_after_ctrl_c(folder: Path) -> None:
    assert interrupt_in_mid_run(folder, signal.SIGINT) == 130
    assert processes_in(folder) == []
    assert list(folder.iterdir()) == []


def test_nothing_is_left_of_the_demo_soon_after_it_was_killed(folder: Path) -> None:
    assert interrupt_in_mid_run(folder, signal.SIGKILL) == -signal.SIGKILL
    wait_until(lambda: processes_in(folder) == [] and list(folder.iterdir()) == [])
