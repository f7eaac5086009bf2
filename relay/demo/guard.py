"""Outlives the process that started it, ends its children and removes its folder. Run as a file, alone.

Standard input is the life line: every line replaces the list of children, as `pid:signal` separated by
blanks. Its end means that the owner is gone, however it went (kill -9 included).
"""

import contextlib
import os
import shutil
import sys
import time
from pathlib import Path

PATIENCE_S = 5.0
POLL_S = 0.01


def main() -> None:
    """Wait for the end of standard input, then signal the listed children and remove the folder `argv[1]`."""
    line = ""
    for line in sys.stdin:  # noqa: B007  only the last list counts
        pass
    children = {int(pid): int(number) for pid, number in (child.split(":") for child in line.split())}
    for pid, number in children.items():
        _signal(pid, number)
    give_up = time.monotonic() + PATIENCE_S
    while any(_alive(pid) for pid in children) and time.monotonic() < give_up:
        time.sleep(POLL_S)
    for pid in filter(_alive, children):
        _signal(pid, 9)
    _remove(Path(sys.argv[1]), give_up=time.monotonic() + PATIENCE_S)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        # A zombie that nobody reaps (a container without an init) has ended all the same.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return not Path("/proc/self").exists()


def _remove(folder: Path, *, give_up: float) -> None:
    """Repeated, since a grandchild that is still ending may write one more file."""
    while folder.exists() and time.monotonic() < give_up:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(POLL_S)


if __name__ == "__main__":
    main()
