"""`make chaos SECONDS=60 SEED=1`: producers, three replicas and a receiver, under faults drawn from a seed.

The oracle is content when every committed job is final or stands visibly behind a dead one, every lane whose
producers lock their entity was delivered in strict order, no two jobs of a lane ran at any sampled instant, no claim
overtook a job it could see, nothing had to be healed, and no more arrived twice than was in flight when something was
killed. Exit code 1 and the reasons, if not.
"""

import argparse
import asyncio
import json
import random
import shutil
import sys
from pathlib import Path

from psycopg import AsyncConnection

from relay.demo.nest import Nest
from relay.demo.postgres import Postgres
from relay.migrate import migrate
from tests.chaos import oracle
from tests.chaos.drain import drained
from tests.chaos.faults import Faults
from tests.chaos.fleet import DEADLINE_S, LEASE_S, Fleet
from tests.chaos.producers import LOCKED, LOOSE, Producer
from tests.chaos.receiver import Receiver
from tests.chaos.sampler import Sampler

REPLICAS = ["replica-a", "replica-b", "replica-c"]


async def run(nest: Nest, postgres: Postgres, seconds: int, seed: int) -> oracle.Verdict:
    """One run; the verdict."""
    dsn = postgres.create_database("chaos")
    await migrate(dsn)
    async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute((Path(__file__).parent / "history.sql").read_bytes())
        for key in LOCKED + LOOSE:
            await connection.execute(b"INSERT INTO chaos.entity VALUES (%s)", (key,))
    receiver = Receiver(seed, hang_s=2 * DEADLINE_S)
    runner = await receiver.start()
    fleet = Fleet(nest, dsn, receiver.port, REPLICAS)
    await fleet.command("sync")
    for name in REPLICAS:
        await fleet.start(name)
    producers = [Producer(dsn, f"{seed}-{n}") for n in range(4)]
    faults = Faults(postgres, dsn, fleet, f"{seed}-faults", freeze_s=LEASE_S + 1.5)
    sampler = Sampler(dsn)
    async with asyncio.TaskGroup() as group:
        group.create_task(sampler.run())
        for producer in producers:
            group.create_task(producer.run())
        await faults.run(seconds)
        sampler.stopping = True
        for producer in producers:
            producer.stopping = True
    receiver.calm = True
    # Half of the runs redrive the dead first; the others end with lanes standing.
    await drained(dsn, redrives=random.Random(f"{seed}-drain").random() < 0.5)
    verdict = oracle.Verdict(seed, kills=faults.kills, in_flight_at_kills=faults.in_flight_at_kills)
    verdict.samples, verdict.doubled = sampler.samples, sampler.doubled
    verdict.healed = fleet.events("lane_healed")
    if crashes := fleet.events("loop_crashed") + fleet.events("attempt_crashed"):
        verdict.faults.append(f"{crashes} crashes in the replicas' logs")
    async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
        await oracle.judge(connection, receiver.arrivals, verdict, fleet)
    await runner.cleanup()
    committed, rolled_back = sum(p.committed for p in producers), sum(p.rolled_back for p in producers)
    print(f"faults: {' '.join(faults.done)}")
    print(f"producers: {committed} transactions committed, {rolled_back} rolled back; redriven {faults.redriven}")
    print(f"replicas: lost leases {fleet.events('lease_lost')}, reclaimed {fleet.events('job_reclaimed')}")
    return verdict


def main() -> None:
    """Runs, prints the verdict, and exits with 1 when the oracle is not content."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--keep", type=Path, help="folder for the replicas' logs when the oracle is not content")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(10**6)
    print(f"seed {seed}", flush=True)
    with Nest() as nest, Postgres(nest, tcp=True, options={"fsync": "off"}) as postgres:
        verdict = asyncio.run(run(nest, postgres, arguments.seconds, seed))
        if verdict.faults and arguments.keep:
            for log in nest.path.glob("*.log"):
                shutil.copy(log, arguments.keep)
    for fault in verdict.faults[:40]:
        print(f"NOT HELD: {fault}")
    figures = {key: value for key, value in verdict.as_json().items() if key != "faults"}
    print("  ".join(f"{key} {value}" for key, value in figures.items()))
    if arguments.json:
        print(json.dumps({**figures, "faults": len(verdict.faults)}))
    sys.exit(1 if verdict.faults else 0)


if __name__ == "__main__":
    main()
