"""Real `relay` processes, known only by their log, their signals and their exit codes."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import relay
from relay.demo.nest import Nest

SECRET = "whsec_" + "QUJD" * 8
PATIENCE_S = 60.0

Event = dict[str, Any]


@dataclass
class Replica:
    """One `relay run`. `events` are the objects it logged so far, `stray` the lines that are none."""

    process: subprocess.Popen[bytes]
    events: list[Event] = field(default_factory=list)
    stray: list[str] = field(default_factory=list)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition, repr=False)
    _ended: bool = False

    async def read(self, stream: asyncio.StreamReader) -> None:
        """Take in the log until the process ends."""
        async for line in stream:
            try:
                self.events.append(json.loads(line))
            except ValueError:
                self.stray.append(line.decode())
            await self._notify()
        self._ended = True
        await self._notify()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def logged(self, name: str, **fields: object) -> list[Event]:
        """The events of this name with these fields so far."""
        return [each for each in self.events if each.items() >= {"event": name, **fields}.items()]

    async def event(self, name: str, **fields: object) -> Event:
        """Wait for an event of this name with these fields; raises AssertionError when the process ended without."""
        async with asyncio.timeout(PATIENCE_S), self._changed:
            await self._changed.wait_for(lambda: self._ended or self.logged(name, **fields))
        found = self.logged(name, **fields)
        assert found, f"the replica ended without logging {name} {fields}: {self.events} {self.stray}"
        return found[0]

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        self.process.send_signal(number)

    async def ended(self) -> int:
        """Wait for the end of the process and of its log; the exit code."""
        code = await asyncio.to_thread(self.process.wait, PATIENCE_S)
        async with asyncio.timeout(PATIENCE_S), self._changed:
            await self._changed.wait_for(lambda: self._ended)
        return code

    async def stop(self) -> int:
        """SIGTERM, and the exit code."""
        self.signal(signal.SIGTERM)
        return await self.ended()


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int
    output: str
    error: str


class Installation:
    """One configuration file, an environment that says nothing else, and the processes started with them."""

    def __init__(self, nest: Nest, folder: Path, dsn: str) -> None:
        self.dsn = dsn
        self.replicas: list[Replica] = []
        #: What the commands printed.
        self.said: list[str] = []
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("RELAY_", "OTEL_"))},
            "PYTHONPATH": str(Path(relay.__file__).parents[1]),
            "RELAY_CONFIG": str(folder / "relay.yaml"),
            "SECRET": SECRET,
        }
        self._nest = nest
        self._folder = folder
        self._readers: list[asyncio.Task[None]] = []
        self._numbers = count(1)

    def configure(self, destinations: Mapping[str, Mapping[str, object]], **groups: Mapping[str, object]) -> None:
        """Write the configuration: destinations signed, soon retried, slow to give up; `groups` override that."""
        usual: dict[str, dict[str, object]] = {
            "database": {"dsn": self.dsn},
            "replica": {"lease_s": 90, "drain_s": 80, "termination_grace_s": 90, "poll_s": 0.5},
            "retention": {"sweep_s": 0.5},
            "defaults": {"deadline_s": 60, "retry": {"base_s": 0.05, "factor": 2, "cap_s": 1}},
        }
        content: dict[str, object] = {
            group: {**usual.get(group, {}), **groups.get(group, {})} for group in {*usual, *groups}
        }
        content["destinations"] = {
            name: {"secrets": [{"env": "SECRET"}], **settings} for name, settings in destinations.items()
        }
        # JSON is YAML too. In one step, or a running replica could read the half of it.
        file = Path(self.environment["RELAY_CONFIG"])
        unfinished = file.with_suffix(".new")
        unfinished.write_text(json.dumps(content))
        unfinished.replace(file)

    async def command(self, *arguments: str) -> Done:
        """Run one relay command to its end."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "relay",
            *arguments,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        async with asyncio.timeout(PATIENCE_S):
            output, error = await process.communicate()
        assert process.returncode is not None
        self.said += [output.decode(), error.decode()]
        return Done(process.returncode, output.decode(), error.decode())

    async def start(self, name: str = "one") -> Replica:
        """Start a replica and return when it has started."""
        replica = await self._spawn(name)
        await replica.event("replica_started")
        return replica

    async def start_two(self) -> tuple[Replica, Replica]:
        """Start two replicas at once and return when both have started."""
        one, two = await self._spawn("one"), await self._spawn("two")
        await one.event("replica_started")
        await two.event("replica_started")
        return one, two

    async def _spawn(self, name: str) -> Replica:
        # A pipe with a name, because the nest wants a file to append to: it sees to it that no replica is left.
        log = self._folder / f"{name}-{next(self._numbers)}.log"
        os.mkfifo(log)
        end = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
        command: Sequence[str] = (sys.executable, "-m", "relay", "run")
        process = self._nest.start(command, log=log, env={**self.environment, "RELAY_REPLICA_NAME": name})
        stream = asyncio.StreamReader(limit=1 << 20)
        protocol: Callable[[], asyncio.StreamReaderProtocol] = lambda: asyncio.StreamReaderProtocol(stream)  # noqa: E731
        await asyncio.get_running_loop().connect_read_pipe(protocol, os.fdopen(end, "rb"))
        replica = Replica(process)
        self._readers.append(asyncio.create_task(replica.read(stream)))
        self.replicas.append(replica)
        return replica

    async def close(self) -> None:
        """Kill what still runs. Raises AssertionError when one logged what none ever should, or said a secret."""
        for replica in self.replicas:
            replica.process.kill()
            await replica.ended()
            self._nest.forget(replica.process)
        await asyncio.gather(*self._readers)
        self.said += [json.dumps(replica.events, ensure_ascii=False) for replica in self.replicas]
        assert not any(SECRET.removeprefix("whsec_") in each for each in self.said)
        for replica in self.replicas:
            assert replica.stray == []
            for bug in ("lane_healed", "loop_crashed", "attempt_crashed", "outcomes_not_written"):
                assert replica.logged(bug) == []
