"""How long a job is on its way when nothing else is: from its commit to its receiver, one job at a time."""

import asyncio
import contextlib
import random
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from relay.demo.nest import Nest
from relay.demo.postgres import Postgres
from tests.bench import cpu
from tests.bench.rig import ROOT
from tests.bench.sides import Side, Stage

SLOTS = 16
_PAUSE_S = (0.02, 0.1)
_ANSWER = b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"


@dataclass(frozen=True)
class Latency:
    """Milliseconds from commit to receiver, sorted."""

    side: str
    ms: Sequence[float]

    def percentile(self, share: float) -> float:
        """The value that so many of 100 do not exceed."""
        return self.ms[min(len(self.ms) - 1, int(share / 100 * len(self.ms)))]

    @property
    def median(self) -> float:
        """Half of them are below."""
        return statistics.median(self.ms)


class _Bell(asyncio.Protocol):
    """Tells when a request began to arrive. One that is small arrives at once."""

    def __init__(self, arrivals: asyncio.Queue[float]) -> None:
        self._arrivals = arrivals
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        now_s = time.monotonic()
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n") + 4) > 3:
            head = self._buffer[:end].lower()
            start = head.index(b"content-length:") + len("content-length:")
            end += int(head[start : head.index(b"\r\n", start)])
            if len(self._buffer) < end:
                return
            self._buffer = self._buffer[end:]
            self._arrivals.put_nowait(now_s)
            self._transport.write(_ANSWER)


@contextlib.asynccontextmanager
async def bell() -> AsyncIterator[tuple[str, asyncio.Queue[float]]]:
    """A receiver in this process: its URL, and the monotonic time of each arrival."""
    arrivals: asyncio.Queue[float] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Bell(arrivals), "127.0.0.1", 0, backlog=1024)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", arrivals
    server.close()


async def probe(stage: Stage, arrivals: asyncio.Queue[float], probes: int) -> list[float]:
    """Milliseconds of each probe. The next one is inserted at a random time after the one before has arrived."""
    rng = random.Random(1)
    producer = await asyncio.create_subprocess_exec(
        *stage.argv("probe"),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=stage.environment, cwd=ROOT,
    )  # fmt: skip
    assert producer.stdin is not None
    assert producer.stdout is not None
    took_ms = []
    for _ in range(probes):
        await asyncio.sleep(rng.uniform(*_PAUSE_S))
        producer.stdin.write(b"go\n")
        committed_s = float(await producer.stdout.readline())
        took_ms.append(1000 * (await arrivals.get() - committed_s))
    producer.stdin.close()
    await producer.wait()
    return took_ms


async def latency(nest: Nest, postgres: Postgres, side: Side, probes: int) -> Latency:
    """Probes a side that has nothing else to do, after it has got used to that."""
    async with bell() as (url, arrivals):
        stage = await asyncio.to_thread(Stage, nest, postgres, side)
        running = stage.running(url, SLOTS)
        await asyncio.to_thread(running.__enter__)
        try:
            while not arrivals.empty():
                arrivals.get_nowait()
            took_ms = await probe(stage, arrivals, probes + 5)
        finally:
            await asyncio.to_thread(running.__exit__, None, None, None)
    return Latency(side.name, sorted(took_ms[5:]))


@dataclass(frozen=True)
class Rest:
    """What one idle replica uses in a minute."""

    statements: float
    client_ms: float
    postgres_ms: float


def rest(nest: Nest, postgres: Postgres, side: Side, url: str, seconds: float) -> Rest:
    """Watches an idle side for so long, after it has delivered to `url`."""
    stage = Stage(nest, postgres, side)
    query = b"""SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
                 WHERE d.datname = %s AND s.userid <> 'watcher'::regrole"""
    with stage.connect() as connection, stage.running(url) as process:
        time.sleep(2)  # it polls quickly for a second before it is idle
        before = connection.execute(query, (stage.database,)).fetchone()
        meter = cpu.Meter(postgres, [process])
        time.sleep(seconds)
        spent = meter.spent()
        after = connection.execute(query, (stage.database,)).fetchone()
    assert before is not None
    assert after is not None
    minutes = seconds / 60
    return Rest((after[0] - before[0]) / minutes, 1000 * spent.client_s / minutes, 1000 * spent.postgres_s / minutes)
