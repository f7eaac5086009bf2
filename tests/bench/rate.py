"""`python -m tests.bench.rate`: how many requests a second one replica sends under `rate_per_s`. A real relay."""

import argparse
import asyncio
import json
import sys
import time

import psycopg

from relay.demo.nest import Nest
from relay.demo.postgres import Postgres
from tests.bench.arrivals import Arrivals
from tests.bench.rig import NAME, Rig

RATES_PER_S = (5, 50, 200)
TOLERANCE = 0.05
# The burst of one second's worth that a replica may begin with, and what it takes to be in step again.
_SKIPPED_S = 2.0
_BACKLOG = "INSERT INTO outbox.job (topic, destination, payload) SELECT 't', %s, '{}' FROM generate_series(1, %s)"


async def measured_per_s(rig: Rig, rate_per_s: float, seconds: float) -> float:
    """Arrivals a second over `seconds`, with more due than can be sent."""
    with rig.connect() as connection:
        rig.empty(connection)
    async with Arrivals() as arrivals, await psycopg.AsyncConnection.connect(rig.dsn, autocommit=True) as connection:
        await connection.execute(_BACKLOG, (NAME, int(rate_per_s * (seconds + 10 * _SKIPPED_S))))
        with rig.replica({NAME: {"url": arrivals.url("/"), "rate_per_s": rate_per_s}}):
            while not arrivals.at_s:
                await asyncio.sleep(0.01)
            since_s = time.monotonic() + _SKIPPED_S
            await asyncio.sleep(_SKIPPED_S + seconds)
            counted = sum(since_s <= at_s < since_s + seconds for at_s in arrivals.at_s.values())
            await connection.execute("DELETE FROM outbox.job WHERE status = 'pending'")
    return counted / seconds


def main() -> int:
    """Prints a line of JSON; the exit code is 1 where a rate is off by more than 5 %."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    arguments = parser.parse_args()
    with Nest() as nest, Postgres(nest, tcp=True) as postgres:
        rig = Rig(nest, postgres)
        ratios = {rate: asyncio.run(measured_per_s(rig, rate, arguments.seconds)) / rate for rate in RATES_PER_S}
    print(json.dumps({"rate_vs_limit": {str(rate): round(ratio, 3) for rate, ratio in ratios.items()}}))
    return int(any(abs(ratio - 1) > TOLERANCE for ratio in ratios.values()))


if __name__ == "__main__":
    sys.exit(main())
