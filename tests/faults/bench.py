"""Replicas that lack something, each started the way that its fault needs; and what must hold all the same."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from relay.demo.nest import Nest
from tests.chaos.fleet import ROOT, SECRET
from tests.chaos.oracle import Verdict
from tests.conftest import Connection
from tests.receiver import Arrival, Receiver
from tests.schema.rows import column, value

LEASE_S, DEADLINE_S, SWEEP_S = 8.0, 2.0, 0.5
# What a replica has let go of is taken back after its lease, by the next sweep, and may then need all of its deadline.
BACK_S = LEASE_S + 2 * SWEEP_S + DEADLINE_S
_INSERT = b"""
INSERT INTO outbox.job (topic, destination, entity_key, payload)
SELECT 't', %s, CASE WHEN n %% 2 = 0 THEN 'lane-' || n %% 5 END, to_json(repeat('x', %s)) FROM generate_series(1, %s) n
RETURNING id
"""
_UNANSWERED = "SELECT count(*) FROM outbox.attempt WHERE status IS NULL"


@dataclass
class Bench:
    """A database, a receiver, and the replicas that a test starts."""

    nest: Nest
    dsn: str
    connection: Connection
    receiver: Receiver
    replica: dict[str, object] = field(default_factory=dict)

    @property
    def log(self) -> str:
        """What the replicas have printed so far."""
        return "\n".join(log.read_text() for log in self.nest.path.glob("replica-*.log"))

    def start(
        self,
        shell: str = "exec",
        *,
        name: str = "one",
        environment: Mapping[str, str] | None = None,
        urls: Mapping[str, str] | None = None,
        modules: Sequence[Path] = (),
    ) -> subprocess.Popen[bytes]:
        """A replica, as the last words of a shell's command.

        `urls` are of more destinations than the receiver; `modules` are folders of more of Python's modules.
        """
        file = self.nest.path / f"{name}.yaml"
        file.write_text(json.dumps(self._configuration(name, {"shop": self.receiver.url(), **(urls or {})})))
        environment = {
            **{name: text for name, text in os.environ.items() if not name.startswith(("RELAY_", "OTEL_"))},
            "PYTHONPATH": ":".join(map(str, [ROOT, *modules])), "RELAY_CONFIG": str(file),
            "SECRET": SECRET, **(environment or {}),
        }  # fmt: skip
        command = ["sh", "-c", f'{shell} "$0" -m relay run', sys.executable]
        return self.nest.start(command, log=self.nest.path / f"replica-{name}.log", env=environment)

    def _configuration(self, name: str, urls: Mapping[str, str]) -> dict[str, object]:
        replica = {"name": name, "lease_s": LEASE_S, "poll_s": 0.2, "drain_s": 8, "termination_grace_s": 18}
        destination = {"signed": True, "secrets": [{"env": "SECRET"}], "insecure_http": True}
        return {
            "database": {"dsn": self.dsn},
            "replica": {**replica, **self.replica},
            "retention": {"sweep_s": SWEEP_S},
            "defaults": {
                "deadline_s": DEADLINE_S,
                "retry": {"max_attempts": 200, "base_s": 0.1, "factor": 1, "jitter": 0.5},
                "headers": {"X-Replica": name},
            },
            "destinations": {each: {"url": url, **destination} for each, url in urls.items()},
        }

    async def insert(self, jobs: int, *, payload_bytes: int = 10, destination: str = "shop") -> list[int]:
        """Commits so many jobs, half of them in five lanes; their ids."""
        rows = await self.connection.execute(_INSERT, [destination, payload_bytes, jobs])
        return [id_ for [id_] in await rows.fetchall()]

    async def all_done(self, process: subprocess.Popen[bytes], within_s: float = 90.0) -> None:
        """Waits until every job of `shop` is done; the replica lives."""
        async with asyncio.timeout(within_s):
            while await value(
                self.connection, "SELECT count(*) FROM outbox.job WHERE destination = 'shop' AND status <> 'done'"
            ):
                assert process.poll() is None, self.log[-3000:]
                await asyncio.sleep(0.05)

    async def says(self, event: str, within_s: float = 30.0) -> None:
        """Returns when a replica has logged this event."""
        async with asyncio.timeout(within_s):
            while f'"event": "{event}"' not in self.log:
                await asyncio.sleep(0.1)

    async def recovers(self, within_s: float = BACK_S) -> float:
        """Inserts a job; the seconds until it is accepted.

        Raises AssertionError when that takes longer than `within_s`.
        """
        since_s = time.monotonic()
        [job] = await self.insert(1)
        try:
            await self.receiver.wait_until(lambda all_: any(_accepted(a) and a.sequence == job for a in all_), within_s)
        except TimeoutError:
            raise AssertionError(f"a new job is not delivered after {within_s:g} s: {self.log[-3000:]}") from None
        return time.monotonic() - since_s

    async def judged(self) -> Verdict:
        """What the receiver saw, held against the table, when all is done.

        Every job was accepted, no job of a lane came after a later one or while an earlier one was answered, and none
        came again that no attempt without an answer accounts for.
        """
        jobs = {*await column(self.connection, "SELECT id FROM outbox.job WHERE destination = 'shop'")}
        accepted = [each.sequence for each in self.receiver.arrivals if _accepted(each)]
        assert {*accepted} == jobs
        lanes: dict[str, list[Arrival]] = defaultdict(list)
        for arrival in self.receiver.arrivals:
            if key := arrival.headers.get("Relay-Entity-Key"):
                lanes[key].append(arrival)
        for key, lane in lanes.items():
            assert [each.sequence for each in lane] == sorted(each.sequence for each in lane), key
            assert not [
                (earlier.sequence, later.sequence)
                for earlier, later in pairwise(lane)
                if earlier.sequence != later.sequence and _accepted(earlier) and later.started < (earlier.ended or 0.0)
            ], key
        again, unanswered = len(accepted) - len(jobs), await value(self.connection, _UNANSWERED)
        assert again <= unanswered
        assert not [said for said in ("_crashed", SECRET.removeprefix("whsec_")) if said in self.log]
        return Verdict(seed=0, jobs=len(jobs), duplicates=again, in_flight_at_kills=unanswered)

    async def ends(self, process: subprocess.Popen[bytes]) -> int:
        """SIGTERM, and the exit code."""
        process.send_signal(signal.SIGTERM)
        return await asyncio.to_thread(process.wait, 30)


def _accepted(arrival: Arrival) -> bool:
    return arrival.status == 204


def resident_kib(process: subprocess.Popen[bytes], *, most: bool = False) -> int:
    """The memory of a process that runs, or with `most` the most that it ever had; 0 when it has ended."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
    except FileNotFoundError:
        return 0
    _, found, rest = status.partition("VmHWM:" if most else "VmRSS:")
    return int(rest.split()[0]) if found else 0


async def killed_above(process: subprocess.Popen[bytes], limit_kib: int, within_s: float = 30.0) -> None:
    """Ends a process with SIGKILL as soon as it has more memory than this, as the kernel does with a container's.

    Raises TimeoutError when it never has.
    """
    async with asyncio.timeout(within_s):
        while resident_kib(process) <= limit_kib:
            await asyncio.sleep(0.005)
    process.kill()
    await asyncio.to_thread(process.wait)
