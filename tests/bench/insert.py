"""What an INSERT into the outbox costs its producer: without any trigger, with them, and with a NOTIFY for each row.

`python -m tests.bench.insert [--seconds 1.5] [--turns 3]`. Every producer commits each row by itself and waits for the
disk. No relay runs: the flag that tells the trigger to wake one is set by hand, so that a row wakes nobody, or somebody
each time. Replicas that are busy lower that flag, and `replica.notify: false` never raises it.
"""

import argparse
import threading
import time
from dataclasses import dataclass

import psycopg

from relay.demo.nest import Nest
from relay.demo.postgres import Postgres
from tests.bench import cpu
from tests.bench.rig import Rig

PRODUCERS = (1, 16)
CASES = {
    "no trigger": b"ALTER TABLE outbox.job DISABLE TRIGGER USER",
    "NOTIFY off": b"SELECT setval('outbox.idle', 0)",
    "NOTIFY on": b"SELECT setval('outbox.idle', 1)",
}
# Without its triggers the table needs to be told what they would fill in.
_INSERT = (
    b"INSERT INTO outbox.job (topic, destination, payload, idempotency_key)"
    b" VALUES ('t', 'bench', %s, gen_random_uuid()::text)"
)
_PAYLOAD = '"' + "x" * 498 + '"'


@dataclass(frozen=True)
class Rate:
    """Rows committed a second, all producers together, and PostgreSQL's CPU time for each."""

    per_s: float
    postgres_ms: float


def _rate(rig: Rig, postgres: Postgres, producers: int, seconds: float) -> Rate:
    """Inserts for so long; a listener hears the NOTIFYs, as a replica would."""
    line, counts = threading.Barrier(producers + 1), []

    def produce() -> None:
        count = 0
        with psycopg.connect(rig.dsn, autocommit=True, prepare_threshold=1) as connection:
            line.wait()
            ends_s = time.monotonic() + seconds
            while time.monotonic() < ends_s:
                connection.execute(_INSERT, (_PAYLOAD,))
                count += 1
        counts.append(count)

    threads = [threading.Thread(target=produce) for _ in range(producers)]
    with rig.connect() as listener:
        listener.execute("LISTEN outbox")
        for thread in threads:
            thread.start()
        line.wait()
        meter = cpu.Meter(postgres, [])
        for thread in threads:
            thread.join()
        spent = meter.spent()
    return Rate(sum(counts) / spent.wall_s, 1000 * spent.postgres_s / sum(counts))


def inserts(rig: Rig, postgres: Postgres, seconds: float, turns: int) -> dict[int, dict[str, Rate]]:
    """For each number of producers and each case the turn of the median rate. Cases take turns."""
    found = {}
    with rig.connect() as connection:
        for producers in PRODUCERS:
            rates: dict[str, list[Rate]] = {case: [] for case in CASES}
            for _ in range(turns):
                for case, prepare in CASES.items():
                    rig.empty(connection)
                    connection.execute("ALTER TABLE outbox.job ENABLE TRIGGER USER")
                    connection.execute(prepare)
                    rates[case].append(_rate(rig, postgres, producers, seconds))
            by_rate = {case: sorted(each, key=lambda rate: rate.per_s) for case, each in rates.items()}
            found[producers] = {case: each[turns // 2] for case, each in by_rate.items()}
    return found


def table(found: dict[int, dict[str, Rate]]) -> None:
    """Prints rows a second, each case beside no trigger at all, and PostgreSQL's CPU time."""
    print("\nrows of 500 bytes inserted a second, each committed by itself:")
    print(f"{'producers':>10}{'':3}{'case':14}{'rows/s':>8}{'of no trigger':>15}{'PG ms a row':>13}")
    for producers, by_case in found.items():
        for case, rate in by_case.items():
            print(f"{producers:10}   {case:14}{rate.per_s:8.0f}{rate.per_s / by_case['no trigger'].per_s:15.2f}"
                  f"{rate.postgres_ms:13.3f}", flush=True)  # fmt: skip


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.5, help="of each turn")
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    with Nest() as nest, Postgres(nest, tcp=True) as postgres:
        table(inserts(Rig(nest, postgres), postgres, options.seconds, options.turns))


if __name__ == "__main__":
    main()
