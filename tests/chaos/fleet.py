"""Real relay processes, each with a configuration of its own."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from relay.demo.nest import Nest

ROOT = Path(__file__).parents[2]
DEADLINE_S = 0.5
LEASE_S = 6.0
SECRET = "whsec_c2VjcmV0LWZvci1hLWxhYm9yYXRvcnktb25seSE="


def configuration(dsn: str, port: int, name: str, **groups: Mapping[str, object]) -> dict[str, object]:
    """Short times, so that much happens in a run, where `groups` say nothing else; a header names the replica."""
    destination = {"url": f"http://127.0.0.1:{port}/", "topics": ["event"], "secrets": [{"env": "CHAOS_SECRET"}]}
    usual: dict[str, dict[str, object]] = {
        "database": {"dsn": dsn, "connect_timeout_s": 2},
        "replica": {
            "name": name,
            "lease_s": LEASE_S,
            "poll_s": 0.2,
            "drain_s": 5.8,
            "termination_grace_s": 16,
        },
        "retention": {"sweep_s": 0.5},
        "defaults": {
            "deadline_s": DEADLINE_S,
            "connect_timeout_s": 0.4,
            "max_in_flight": 16,
            "retry": {"max_attempts": 6, "base_s": 0.05, "factor": 2, "cap_s": 0.5},
            "headers": {"X-Replica": name},
        },
        "destinations": {
            policy: {**destination, "url": f"http://127.0.0.1:{port}/{policy}", "on_dead": policy}
            for policy in ("block", "skip")
        },
    }
    return {group: {**content, **groups.get(group, {})} for group, content in usual.items()}


class Fleet:
    """Replicas by name."""

    def __init__(self, nest: Nest, dsn: str, port: int, names: list[str], **groups: Mapping[str, object]) -> None:
        self.names = names
        self._freezes: list[tuple[str, float, float]] = []
        self._nest = nest
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("RELAY_")}
        self._environment = {**inherited, "CHAOS_SECRET": SECRET, "PYTHONPATH": str(ROOT)}
        for name in names:
            self._file(name).write_text(json.dumps(configuration(dsn, port, name, **groups)))

    async def start(self, name: str) -> None:
        """Starts a replica; it is not waited for."""
        argv = [sys.executable, "-m", "relay", "-c", str(self._file(name)), "run"]
        self._processes[name] = self._nest.start(argv, log=self.log(name), env=self._environment)

    def signal(self, name: str, number: signal.Signals) -> None:
        """Sends a signal to a replica."""
        self._processes[name].send_signal(number)

    def pid(self, name: str) -> int:
        """The process id of a replica."""
        return self._processes[name].pid

    def alive(self, name: str) -> bool:
        """Whether the process runs."""
        return self._processes[name].poll() is None

    async def ended(self, name: str) -> int:
        """Waits for the process to end; its exit code."""
        process = self._processes[name]
        code = await asyncio.to_thread(process.wait)
        self._nest.forget(process)
        return code

    async def freeze(self, name: str, seconds: float) -> None:
        """Stops a replica in the middle of whatever it does, and lets it go on."""
        began_s = time.monotonic()
        self.signal(name, signal.SIGSTOP)
        await asyncio.sleep(seconds)
        self._freezes.append((name, began_s, time.monotonic()))
        self.signal(name, signal.SIGCONT)

    def just_thawed(self, name: str, at_s: float) -> bool:
        """Whether the replica was let go, after a freeze longer than its lease, less than a deadline before `at_s`."""
        return any(name == each and 0 <= at_s - ended_s <= DEADLINE_S for each, _, ended_s in self._freezes)

    def frozen(self, name: str, at_s: float | None) -> bool:
        """Whether the replica was frozen at that time."""
        return at_s is not None and any(
            name == each and began_s <= at_s <= ended_s for each, began_s, ended_s in self._freezes
        )

    async def command(self, *arguments: str) -> None:
        """Runs a relay command to its end."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "relay", "-c", str(self._file(self.names[0])), *arguments,
            env=self._environment, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        await process.communicate()

    def log(self, name: str) -> Path:
        """Where a replica's log goes, over all its lives."""
        return self._nest.path / f"{name}.log"

    def events(self, event: str) -> int:
        """How often the replicas logged an event."""
        return sum(self.log(name).read_text().count(f'"event": "{event}"') for name in self.names)

    def _file(self, name: str) -> Path:
        return self._nest.path / f"{name}.yaml"
