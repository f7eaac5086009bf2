"""The demo's processes beside PostgreSQL: relay commands, replicas and the receiver."""

import asyncio
import base64
import json
import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path

import relay
from relay.demo.nest import Nest
from relay.demo.receiver import secret_variable
from relay.demo.report import SUBSCRIPTIONS, Arrival
from relay.errors import RelayError

START_PATIENCE_S = 30.0
POLL_S = 0.02

Process = subprocess.Popen[bytes]


class Fleet:
    """Starts, kills and stops them; the nest sees to it that none is left."""

    def __init__(self, nest: Nest, dsn: str) -> None:
        self.replicas: dict[str, Process] = {}
        self._nest = nest
        self._dsn = dsn
        self._record = nest.path / "arrivals.jsonl"
        self._read_to = 0
        self._receiver: Process | None = None
        secret = {
            secret_variable(name): "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
            for name in SUBSCRIPTIONS
        }
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("RELAY_")},
            "RELAY_CONFIG": str(nest.path / "relay.yaml"),
            "PYTHONPATH": str(Path(relay.__file__).parent.parent),
            **secret,
        }

    def command(self, *arguments: str) -> None:
        """Run one relay command to its end. Raises `RelayError` with its words when it fails."""
        argv = [sys.executable, "-m", "relay", *arguments]
        done = subprocess.run(argv, env=self._environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RelayError(f"relay {' '.join(arguments)} failed: {(done.stderr or done.stdout).strip()}")

    async def start_receiver(self) -> None:
        """Start it and write the configuration that points to its port."""
        argv = [sys.executable, "-m", "relay.demo.receiver", str(self._record)]
        log = self._nest.path / "receiver.log"
        self._receiver = self._nest.start(argv, log=log, env=self._environment)
        async with asyncio.timeout(START_PATIENCE_S):
            while not (port := self._new_lines()):
                _must_live("receiver", self._receiver, log)
                await asyncio.sleep(POLL_S)
        config = self._nest.path / "relay.yaml"
        config.touch(mode=0o600)
        # JSON is YAML too.
        config.write_text(json.dumps(configuration(self._dsn, int(port[0])), indent=2))

    def start_replica(self, name: str) -> None:
        """Start `relay run` under this name."""
        self.replicas[name] = self._nest.start(
            [sys.executable, "-m", "relay", "run"],
            log=self._log(name),
            env={**self._environment, "RELAY_REPLICA_NAME": name},
        )

    def kill_replica(self, name: str) -> None:
        """SIGKILL, and nothing else."""
        process = self.replicas.pop(name)
        process.kill()
        process.wait()
        self._nest.forget(process)

    async def stop_replicas(self) -> None:
        """SIGTERM and wait. Raises `RelayError` when one does not end with exit code 0."""
        for name, process in self.replicas.items():
            code = await asyncio.to_thread(self._nest.stop, process, signal.SIGTERM, then=signal.SIGKILL)
            if code != 0:
                raise RelayError(f"{name} ended with code {code} after SIGTERM: {_last_words(self._log(name))}")

    def check(self) -> None:
        """Raises `RelayError` when a process ended by itself."""
        for name, process in self.replicas.items():
            _must_live(name, process, self._log(name))
        if self._receiver is not None:
            _must_live("receiver", self._receiver, self._nest.path / "receiver.log")

    def arrivals(self) -> list[Arrival]:
        """What the receiver wrote down since the last call."""
        return [Arrival(**json.loads(line)) for line in self._new_lines()]

    def _new_lines(self) -> list[str]:
        if not self._record.exists():
            return []
        with self._record.open("rb") as record:
            record.seek(self._read_to)
            whole, newline, _ = record.read().rpartition(b"\n")
        self._read_to += len(whole) + len(newline)
        return whole.decode().splitlines()

    def _log(self, name: str) -> Path:
        return self._nest.path / f"{name}.log"


def configuration(dsn: str, port: int) -> dict[str, object]:
    """relay.yaml of the demo: patience of seconds instead of hours."""
    return {
        "database": {"dsn": dsn},
        "replica": {"lease_s": 8, "drain_s": 8, "termination_grace_s": 18},
        "retention": {"sweep_s": 1},
        "defaults": {
            "deadline_s": 2,
            "retry": {"max_attempts": 5, "base_s": 0.2, "factor": 2, "cap_s": 2},
        },
        "destinations": {
            name: {
                "url": f"http://127.0.0.1:{port}/{name}",
                "topics": list(topics),
                "secrets": [{"env": secret_variable(name)}],
            }
            for name, topics in SUBSCRIPTIONS.items()
        },
    }


def _must_live(name: str, process: Process, log: Path) -> None:
    if process.poll() is not None:
        raise RelayError(f"{name} ended by itself with code {process.returncode}: {_last_words(log)}")


def _last_words(log: Path) -> str:
    return " | ".join(log.read_text(errors="replace").splitlines()[-5:]) or "it said nothing"
