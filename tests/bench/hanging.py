"""`python -m tests.bench.hanging`: what one of 20 destinations that hangs costs the others. A real relay.

Two runs make a pair, one with a destination that answers nothing until its deadline, with a backlog behind it, and one
in which it answers. The ratio of the others' median times from commit to receiver is taken in each pair, since
the machine may be another one a minute later; the median of the ratios is what counts.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time

import psycopg

from relay.demo.nest import Nest
from relay.demo.postgres import Postgres
from tests.bench.arrivals import HANGING, Arrivals
from tests.bench.rig import Rig

OTHERS = tuple(f"other-{number}" for number in range(19))
SLOTS = 64
BACKLOG = 2_000
MOST = 1.5
_EVERY_S = 0.01
_INSERT = "INSERT INTO outbox.job (topic, destination, payload) VALUES ('t', %s, '{}') RETURNING id"
_BACKLOG = (
    "INSERT INTO outbox.job (topic, destination, payload) SELECT 't', 'hanging', '{}' FROM generate_series(1, %s)"
)


async def _waits_ms(arrivals: Arrivals, connection: psycopg.AsyncConnection, seconds: float) -> list[float]:
    """How long each of the others' jobs was on its way; one is committed every 10 ms."""
    committed_s: dict[int, float] = {}
    for n in range(int(seconds / _EVERY_S)):
        row = await (await connection.execute(_INSERT, (OTHERS[n % len(OTHERS)],))).fetchone()
        assert row is not None
        committed_s[row[0]] = time.monotonic()
        await asyncio.sleep(_EVERY_S)
    while not committed_s.keys() <= arrivals.at_s.keys():
        await asyncio.sleep(_EVERY_S)
    # Every destination has a connection by then.
    counted = list(committed_s.items())[len(OTHERS) :]
    return [1000 * (arrivals.at_s[job] - at_s) for job, at_s in counted]


async def _run(rig: Rig, seconds: float, *, hang: bool) -> float:
    """The median of one run in ms."""
    with rig.connect() as connection:
        rig.empty(connection)
    async with Arrivals() as arrivals, await psycopg.AsyncConnection.connect(rig.dsn, autocommit=True) as connection:
        arrivals.hang = hang
        urls = {"hanging": arrivals.url(HANGING), **dict.fromkeys(OTHERS, arrivals.url("/"))}
        with rig.replica({name: {"url": url, "max_in_flight": SLOTS} for name, url in urls.items()}):
            if hang:
                await connection.execute(_BACKLOG, (BACKLOG,))
                while arrivals.hung < SLOTS:
                    await asyncio.sleep(_EVERY_S)
            waits_ms = await _waits_ms(arrivals, connection, seconds)
            # Nothing hangs any longer than it must for the replica to end.
            await connection.execute("DELETE FROM outbox.job WHERE status = 'pending'")
    return statistics.median(waits_ms)


def pairs(rig: Rig, number: int, seconds: float) -> list[tuple[float, float]]:
    """The medians of `number` pairs in ms: with the one that hangs, and without; they take turns to be first."""
    found = []
    for n in range(number):
        order = (True, False) if n % 2 else (False, True)
        medians = {hang: asyncio.run(_run(rig, seconds, hang=hang)) for hang in order}
        found.append((medians[True], medians[False]))
    return found


def main() -> int:
    """Prints a line of JSON; the exit code is 1 where the others wait too long."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8.0, help="of one run; below the deadline of 15 s")
    arguments = parser.parse_args()
    with Nest() as nest, Postgres(nest, tcp=True) as postgres:
        found = pairs(Rig(nest, postgres), arguments.pairs, arguments.seconds)
    ratio = statistics.median(hanging / usual for hanging, usual in found)
    print(
        json.dumps(
            {
                "others_latency_beside_a_hanging_destination": round(ratio, 2),
                "at_most": MOST,
                "hanging_ms": [round(hanging, 2) for hanging, _ in found],
                "usual_ms": [round(usual, 2) for _, usual in found],
            }
        )
    )
    return int(ratio > MOST)


if __name__ == "__main__":
    sys.exit(main())
