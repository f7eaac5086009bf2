"""CPU seconds as the operating system counts them, for one process or for a server with its children."""

import os
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def process_s(pid: int) -> float:
    """User and system time of one process and its threads."""
    return sum(_times(pid)[:2]) / _TICKS_PER_S


def tree_s(pid: int) -> float:
    """User and system time of a process, of its children, and of the children it has already waited for."""
    return (sum(_times(pid)) + sum(sum(_times(child)) for child in _children(pid))) / _TICKS_PER_S


def _times(pid: int) -> list[int]:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return [0, 0, 0, 0]
    return [int(field) for field in fields[11:15]]


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
