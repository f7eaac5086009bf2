"""`make soak MINUTES=60 SEED=1`: a steady load for a long time, and nothing that grows.

Producers insert for two destinations (some roll back, some commit late), a receiver fails some requests and hangs on
others, dead letters are redriven, finished jobs are deleted soon, and two of three replicas are restarted in turn. The
third lives through the run: its memory, descriptors and connections are what is watched, and the tables' size.

Exit code 1, and why, unless every committed job was accepted, none arrived out of order or while another of its lane
was answered, none arrived again unless the answer had been too slow, the replica had no more connections and
descriptors than it may, and, in a run of at least ten minutes, every gauge stayed flat. A minute shows no trend.
"""

import argparse
import asyncio
import contextlib
import json
import random
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from psycopg import AsyncConnection

from relay.demo.nest import Nest
from relay.demo.postgres import Postgres
from relay.migrate import migrate
from tests.chaos.drain import drained
from tests.chaos.faults import dead, redrive
from tests.chaos.fleet import Fleet
from tests.chaos.producers import LOCKED, LOOSE, Producer
from tests.soak import gauges
from tests.soak.gauges import Gauges, Trend
from tests.soak.watch import Watch

STEADY, *ROLLING = "replica-a", "replica-b", "replica-c"
PRODUCERS = 3
DEADLINE_S = 3.0
REPLICA = {"lease_s": 12.0, "drain_s": 11.0, "termination_grace_s": 30, "poll_s": 0.5}
RETENTION = {"done_s": 10.0, "attempt_s": 10.0, "sweep_s": 1.0}
REDRIVE_EVERY_S = 2.0
# A run is short beside autovacuum's usual minute.
SERVER = {"fsync": "off", "autovacuum_naptime": "2s"}
# No gauge is read in the first part of a run: tables fill up to their retention, processes to what they need.
WARM_UP, READINGS = 1 / 3, 200
# From here on a trend is one: a vacuum more or less is noise.
TRENDS_FROM_S = 600


@dataclass
class Run:
    """What happened, and the readings of the gauges."""

    restarts: int = 0
    redriven: int = 0
    readings: list[tuple[float, Gauges]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


async def soak(nest: Nest, postgres: Postgres, seconds: float, seed: int) -> dict[str, object]:
    """One run; its figures, printed as they are known."""
    dsn = postgres.create_database("soak")
    await migrate(dsn)
    async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute((Path(__file__).parent / "ledger.sql").read_bytes())
        for key in LOCKED + LOOSE:
            await connection.execute(b"INSERT INTO chaos.entity VALUES (%s)", (key,))
    watch, run = Watch(seed, DEADLINE_S), Run()
    runner = await watch.start()
    fleet = Fleet(
        nest, dsn, watch.port, [STEADY, *ROLLING],
        replica=REPLICA, retention=RETENTION, defaults={"deadline_s": DEADLINE_S}, log={"level": "warning"},
    )  # fmt: skip
    await fleet.command("sync")
    for name in fleet.names:
        await fleet.start(name)
    await _load(dsn, fleet, run, seconds, seed)
    watch.calm = True
    await drained(dsn, redrives=True)
    await runner.cleanup()
    await _judge(dsn, fleet, watch, run)
    trends = gauges.trends(run.readings)
    run.faults += [f"{trend.name} reached {trend.most:g}" for trend in trends if not trend.bounded]
    if seconds >= TRENDS_FROM_S:
        run.faults += [f"{trend.name} grows: {trend}" for trend in trends if not trend.flat]
    return _told(run, watch, trends)


async def _load(dsn: str, fleet: Fleet, run: Run, seconds: float, seed: int) -> None:
    producers = [Producer(dsn, f"{seed}-{n}") for n in range(PRODUCERS)]
    beside = [_roll(fleet, run, max(5.0, seconds / 60)), _redrive(dsn, run), _read(dsn, fleet, run, seconds)]
    async with asyncio.TaskGroup() as group:
        for producer in producers:
            group.create_task(producer.run())
        tasks = [group.create_task(each) for each in beside]
        await asyncio.sleep(seconds)
        for task in tasks:
            task.cancel()
        for producer in producers:
            producer.stopping = True
    for name in fleet.names:
        if not fleet.alive(name):
            await fleet.start(name)


async def _roll(fleet: Fleet, run: Run, every_s: float) -> None:
    """Restarts one replica after the other, as a rollout does."""
    while True:
        for name in ROLLING:
            await asyncio.sleep(every_s)
            while fleet.events("replica_started") < len(fleet.names) + run.restarts:
                await asyncio.sleep(0.1)
            fleet.signal(name, signal.SIGTERM)
            if (code := await fleet.ended(name)) != 0:
                run.faults.append(f"{name} was stopped and ended with {code}")
            await fleet.start(name)
            run.restarts += 1


async def _redrive(dsn: str, run: Run) -> None:
    async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
        while True:
            await asyncio.sleep(REDRIVE_EVERY_S)
            ids = await dead(connection)
            await redrive(dsn, ids, force=True)
            run.redriven += len(ids)


async def _read(dsn: str, fleet: Fleet, run: Run, seconds: float) -> None:
    async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
        await asyncio.sleep(WARM_UP * seconds)
        while True:
            reading = await gauges.read(connection, fleet.pid(STEADY), STEADY)
            run.readings.append((time.monotonic(), reading))
            await asyncio.sleep((1 - WARM_UP) * seconds / READINGS)


async def _judge(dsn: str, fleet: Fleet, watch: Watch, run: Run) -> None:
    async with await AsyncConnection.connect(dsn) as connection, connection.cursor("ledger") as ledger:
        await ledger.execute(b"SELECT job_id FROM chaos.ledger")
        lost = [job_id async for [job_id] in ledger if not watch.accepted(job_id)]
    broken = {
        f"committed and never accepted: {len(lost)} jobs, as {lost[:5]}": lost,
        f"{watch.inversions} arrived after a later job of their entity": watch.inversions,
        f"{watch.overlaps} were being answered when a later job of their entity began": watch.overlaps,
        f"{watch.duplicates} arrived again, and {watch.slow} answers were slow": watch.duplicates > watch.slow,
        **{
            f"{fleet.events(bug)} times {bug}": fleet.events(bug)
            for bug in ("lane_healed", "loop_crashed", "attempt_crashed")
        },
    }
    run.faults += [sentence for sentence, held in broken.items() if held]


def _told(run: Run, watch: Watch, trends: list[Trend]) -> dict[str, object]:
    for trend in trends:
        print(trend)
    for fault in run.faults:
        print(f"NOT HELD: {fault}")
    return {
        "requests": watch.requests, "restarts": run.restarts, "redriven": run.redriven,
        "duplicates": watch.duplicates, "slow": watch.slow, "inversions": watch.inversions, "overlaps": watch.overlaps,
        **{trend.name: {"mean": round(trend.mean, 1), "per_hour": round(trend.per_hour, 1)} for trend in trends},
        "faults": len(run.faults),
    }  # fmt: skip


def main() -> None:
    """Runs, prints the figures, and exits with 1 when something did not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--json", action="store_true", help="the figures as one JSON object on the last line")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(10**6)
    print(f"seed {seed}, {arguments.minutes:g} minutes", flush=True)
    with Nest() as nest, Postgres(nest, tcp=True, options=SERVER) as postgres:
        figures = asyncio.run(soak(nest, postgres, 60 * arguments.minutes, seed))
        if figures["faults"]:
            with contextlib.suppress(OSError):
                for log in nest.path.glob("replica-*.log"):
                    print(f"{log.name}: {log.read_text()[-2000:]}")
    print(json.dumps({"seed": seed, "minutes": arguments.minutes, **figures}) if arguments.json else figures)
    sys.exit(1 if figures["faults"] else 0)


if __name__ == "__main__":
    main()
