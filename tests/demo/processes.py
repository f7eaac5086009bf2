"""What other processes do, as far as a stranger can see it (Linux: /proc)."""

import time
from collections.abc import Callable
from pathlib import Path


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


def wait_until(true: Callable[[], bool], timeout_s: float = 20.0) -> None:
    """Look again until it is so: the end of a stranger's process gives no signal."""
    give_up = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < give_up, "it did not happen"
        time.sleep(0.01)
