"""What a destination costs that has nothing to do: idle replicas with 1, 20 and 1,000 of them, and one job for one.

A replica that is told by NOTIFY which destination has a job claims from that one only. Now and then its scout looks for
due jobs of any, which is what the pages and the CPU time of an idle second are for.
"""

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import psycopg

from relay.demo.nest import Nest
from relay.demo.postgres import Postgres
from tests.bench import cpu
from tests.bench.rig import NAME, Rig, receiver
from tests.bench.sides import watched

DESTINATIONS = (1, 20, 1_000)
_PROBES = 21
_POLLS_QUICKLY_S = 3.0  # before it is idle
_LOOKS = """
SELECT coalesce(sum(s.calls), 0)::bigint, coalesce(sum(s.shared_blks_hit + s.shared_blks_read), 0)::bigint
  FROM pg_stat_statements s
 WHERE s.dbid = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
   AND (s.query LIKE '%doorbell AS MATERIALIZED%' OR s.query LIKE '%RECURSIVE front%')
   AND s.query NOT LIKE '%pg_stat_statements%'
"""
_INSERT = b"INSERT INTO outbox.job (topic, destination, payload) VALUES ('t', 'bench', '{}')"
_UNDONE = "SELECT count(*) FROM outbox.job WHERE status <> 'done'"


@dataclass(frozen=True)
class Many:
    """Of an idle second the claims and the scout's looks, their pages and the CPU time; and the pages for one job."""

    destinations: int
    looks_per_s: float
    pages_per_s: float
    client_ms_per_s: float
    postgres_ms_per_s: float
    pages_a_job: float


def _looks(rig: Rig, connection: psycopg.Connection) -> tuple[int, int]:
    calls, pages = rig.row(connection, _LOOKS)
    return calls, pages


def _many(postgres: Postgres, rig: Rig, destinations: int, seconds: float) -> Many:
    assert postgres.pid is not None
    with receiver(0) as url, rig.connect() as connection:
        rig.empty(connection)
        named = {NAME: {"url": url}, **{f"other-{n}": {"url": url} for n in range(destinations - 1)}}
        with rig.replica(named) as replica:
            time.sleep(_POLLS_QUICKLY_S)
            calls, pages = _looks(rig, connection)
            meter = cpu.Meter(postgres, [replica])
            time.sleep(seconds)
            spent = meter.spent()
            now_calls, now_pages = _looks(rig, connection)
        # Polled rarely, so that hardly a job meets a look at all of them.
        with rig.replica(named, replica={"poll_s": 60}):
            _quiet(rig, connection)
            pages_a_job = statistics.median(_pages_a_job(rig, connection) for _ in range(_PROBES))
    return Many(
        destinations, (now_calls - calls) / seconds, (now_pages - pages) / seconds, 1000 * spent.client_s / seconds,
        1000 * spent.postgres_s / seconds, pages_a_job,
    )  # fmt: skip


def _quiet(rig: Rig, connection: psycopg.Connection) -> None:
    """Returns when the replica has not looked for two seconds: it looks ever more rarely."""
    before = None
    while before != (before := _looks(rig, connection)):
        time.sleep(2)


def _pages_a_job(rig: Rig, connection: psycopg.Connection) -> int:
    """Pages of what looked from a job's INSERT until it is delivered and recorded."""
    _, before = _looks(rig, connection)
    connection.execute(_INSERT)
    while rig.row(connection, _UNDONE) != (0,):
        time.sleep(0.01)
    return _looks(rig, connection)[1] - before


def many(nest: Nest, postgres: Postgres, seconds: float) -> list[Many]:
    """Each number of destinations."""
    rig = Rig(nest, postgres, "many")
    return [_many(postgres, rig, destinations, seconds) for destinations in DESTINATIONS]


def table(found: Sequence[Many]) -> None:
    """Prints what `many` found."""
    print("\ndestinations with nothing to do, each second, and one job for one of them:")
    print(f"{'destinations':>13}{'looks':>8}{'pages':>8}{'client ms':>11}{'PG ms':>7}{'pages a job':>13}")
    for each in found:
        print(f"{each.destinations:13}{each.looks_per_s:8.1f}{each.pages_per_s:8.0f}"
              f"{each.client_ms_per_s:11.1f}{each.postgres_ms_per_s:7.1f}"
              f"{each.pages_a_job:13.0f}", flush=True)  # fmt: skip


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each idle time")
    seconds = parser.parse_args().seconds
    with Nest() as nest, watched(nest) as postgres:
        table(many(nest, postgres, seconds))


if __name__ == "__main__":
    main()
