import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

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


def processes_in(folder: Path) -> list[str]:
    """The command lines of every process that works in `folder`: all of the demo's children do."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if process.joinpath("cwd").readlink().is_relative_to(folder):
                found.append(process.joinpath("cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


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


def test_nothing_is_left_of_the_demo_after_ctrl_c(folder: Path) -> None:
    with start(folder, "--seconds", "60") as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "committed" in line:
                break
        assert len(processes_in(folder)) >= 4
        demo.send_signal(signal.SIGINT)
        output, _ = demo.communicate()
    assert demo.returncode == 130, output
    assert processes_in(folder) == []
    assert list(folder.iterdir()) == []
