"""CPU seconds as the operating system counts them, for one process or for a server with its children."""

import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from relay.demo.postgres import Postgres

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Spent:
    """Seconds by the clock, and CPU seconds of the clients and of PostgreSQL apart."""

    wall_s: float
    client_s: float
    postgres_s: float


class Meter:
    """Measures what clients and PostgreSQL spend from here on."""

    def __init__(self, postgres: Postgres, clients: Sequence[subprocess.Popen[bytes]]) -> None:
        assert postgres.pid is not None
        self._postgres_pid = postgres.pid
        self._clients = clients
        self._before = self._now()

    def spent(self) -> Spent:
        """What was spent since."""
        before, now = self._before, self._now()
        return Spent(now.wall_s - before.wall_s, now.client_s - before.client_s, now.postgres_s - before.postgres_s)

    def _now(self) -> Spent:
        client_s = sum(process_s(client.pid) for client in self._clients)
        return Spent(time.monotonic(), client_s, tree_s(self._postgres_pid))


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
