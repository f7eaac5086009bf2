"""`make retain`: what old rows cost. A look at two million jobs, cleaning them beside deliveries, and twenty turnovers.

Read the ratios; the figures belong to the machine they were made on. Exit code 1 when a count of pages, a ratio of
pages or of sizes is worse than it may be on any machine. `--quick` does less of each.
"""

import argparse
import asyncio
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing

import psycopg

from relay import rows
from relay.admin import COUNTED, COUNTED_OF_EACH, LANES_SHOWN, LANES_WALKED, fair
from relay.database import Database
from relay.dead import BEHIND_CAP
from relay.demo.nest import Nest
from relay.demo.postgres import Postgres
from relay.model import Settlement
from relay.rows import Range
from relay.store import Store
from tests.bench.rig import Rig
from tests.store.plan import Planner, buffers

# Vacuum's pauses shrink with the table, or a short run would end before the first one. Without images of whole pages
# the log's bytes are those of the jobs, not those of a checkpoint that happened to be near.
OPTIONS = {"autovacuum_naptime": "1s", "full_page_writes": "off", "max_wal_size": "4GB", "synchronous_commit": "off"}
_SLOTS = 64
_CHUNK = 500
_PROBES = 15

# Each page a mix of all destinations; of each ten jobs six are done, two wait or will, one is blocked, one dead.
_MIX = """
INSERT INTO outbox.job (destination, topic, entity_key, payload, claims, status, holds_lane, run_at, finished_at)
SELECT 'd' || n %% {destinations} + 1, 't', CASE WHEN k.status IN ('blocked', 'dead') THEN 'e' || n / 100 END, '{{}}',
       1, k.status, k.status <> 'done', now() + (n %% 3 - 1.5) * interval '1 h',
       CASE WHEN k.status IN ('done', 'dead') THEN now() - n * interval '1 ms' END
  FROM generate_series(1, %s) AS n
 CROSS JOIN LATERAL (
       SELECT ('{{done,done,done,done,done,done,pending,pending,blocked,dead}}'::text[])
              [1 + n / {destinations} %% 10] AS status) k
"""
_HISTORY = """
INSERT INTO outbox.attempt (job_id, claim, attempt, replica, error_class, detail, duration_s)
SELECT j.id, 1, 1, 'r', 'status', 'answered 503', 0.1 FROM outbox.job j WHERE j.status = 'dead';
INSERT INTO outbox.operation (actor, verb, job_id, destination)
SELECT 'ada', 'redrive', j.id, j.destination FROM outbox.job j WHERE j.status = 'dead';
"""
_OLD = b"""
INSERT INTO outbox.job (destination, topic, payload, claims, status, holds_lane, finished_at)
SELECT 'bench', 't', to_json(repeat('x', 490)), 1, 'done', false, now() - interval '2 h' - n * interval '1 ms'
  FROM generate_series(1, %s) AS n
"""
_JOBS = (
    b"INSERT INTO outbox.job (destination, topic, payload) SELECT %s, 't', to_json(repeat('x', 490))"
    b" FROM generate_series(1, %s)"
)
_UNSENT = (
    b"SELECT EXISTS (SELECT FROM outbox.job WHERE status = 'pending' AND destination = 'bench')"
    b" OR EXISTS (SELECT FROM outbox.job WHERE status = 'running' AND destination = 'bench')"
)
_ANY_OLD = (
    b"SELECT EXISTS (SELECT FROM outbox.job WHERE status IN ('done', 'discarded')"
    b" AND finished_at < now() - interval '1 h')"
)
_SIZES = """
SELECT c.relname, pg_relation_size(c.oid) / 8192
  FROM pg_class c
 WHERE c.oid = 'outbox.job'::regclass
    OR c.oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = 'outbox.job'::regclass)
"""
_LISTED = 100
_ALL = dict.fromkeys(("destination", "topic", "entity_key", "since", "until", "error"))
_LOOKS: Mapping[str, Sequence[tuple[str, Mapping[str, object]]]] = {
    "relay dead list": [("dead", {**_ALL, "after_destination": "", "after_id": 0, "width": 1_000})],
    "relay operations": [("operations", {"destination": "d1", "job_id": None, "width": _LISTED})],
}


def _status(destinations: int) -> Sequence[tuple[str, Mapping[str, object]]]:
    """The statements of `relay status`, as it asks them."""
    cap = fair(COUNTED, destinations, least=COUNTED_OF_EACH)
    names = [f"d{number}" for number in range(1, destinations + 1)]
    lanes = {"destinations": names, "walk": fair(LANES_WALKED, destinations), "show": LANES_SHOWN, "cap": cap}
    return [("status", {"cap": cap}), ("lanes", lanes), ("unrouted", {"cap": cap}), ("replicas", {})]


class Report:
    """The figures for the last line, and what was worse than it may be."""

    def __init__(self) -> None:
        self.figures: dict[str, float] = {}
        self.faults: list[str] = []

    def note(self, name: str, value: float, *, most: float | None = None) -> None:
        """Keeps a figure, and a fault when it is out of bounds."""
        self.figures[name] = round(value, 3)
        if most is not None and value > most:
            self.faults.append(f"{name} is {value:.2f}, more than {most:g}")


def fill(rig: Rig, statement: bytes, count: int) -> None:
    """Writes rows past the triggers, and lets the planner know."""
    with rig.connect() as connection:
        rig.empty(connection)
        connection.execute("SET session_replication_role = replica")
        connection.execute(statement, (count,))
        connection.execute("ANALYZE outbox.job")


def looks(rig: Rig, report: Report, jobs: int, destinations: int) -> None:
    """Pages that a look reads of so many jobs, a failed attempt for each dead one, and as many operations."""
    fill(rig, _MIX.format(destinations=destinations).encode(), jobs)
    with rig.connect() as connection:
        names = "INSERT INTO outbox.destination (name) SELECT 'd' || n FROM generate_series(1, %s) AS n"
        connection.execute(names, (destinations,))
        connection.execute(_HISTORY)
        connection.execute("ANALYZE outbox.attempt, outbox.operation")
    print(f"\npages that a look reads of {jobs:,} jobs for {destinations} destinations")
    with closing(Planner(rig.dsn)) as planner, planner.knowing("analysed"):
        for command, statements in {"relay status": _status(destinations), **_LOOKS}.items():
            pages = {
                name: buffers(planner.explain(name, values, "custom", analyze=True)) for name, values in statements
            }
            if command == "relay dead list":
                listed = planner.fetch("SELECT id FROM outbox.job WHERE status = 'dead' ORDER BY id LIMIT %s", _LISTED)
                behind = {"ids": [row[0] for row in listed], "cap": BEHIND_CAP}
                pages["behind"] = buffers(planner.explain("behind", behind, "custom", analyze=True))
            total = sum(pages.values())
            print(f"  {command:18}{total:8,}  {', '.join(f'{name} {n:,}' for name, n in pages.items())}")
            report.note(f"{command.replace(' ', '_')}_pages_{destinations}_destinations", total, most=20_000)


def _claim_cost(planner: Planner) -> tuple[int, float]:
    """Pages and milliseconds of one claim of 64, which is taken back."""
    asked = [Range("probe", priority, _SLOTS, _SLOTS) for priority in range(4)]
    parameters = {
        **rows.claim_parameters(asked, narrow=False), "locked_by": "probe", "lease_s": 60.0, "payload_bytes": 1 << 28,
    }  # fmt: skip
    with planner.knowing("analysed"):
        started_s = time.perf_counter()
        pages = buffers(planner.explain("claim", parameters, "custom", analyze=True))
        return pages, 1000 * (time.perf_counter() - started_s)


def _deliver(rig: Rig, connection: psycopg.Connection, planner: Planner, jobs: int) -> tuple[float, tuple[int, float]]:
    """Delivers so many jobs; how many each second, and what a claim of another destination costs half-way."""
    started_s = time.monotonic()
    connection.execute(_JOBS, ("bench", jobs))
    cost = _claim_cost(planner)
    while rig.row(connection, _UNSENT.decode())[0]:
        time.sleep(0.02)
    return jobs / (time.monotonic() - started_s), cost


def clean(rig: Rig, report: Report, old: int, jobs: int) -> None:
    """Deletes so many finished rows while others are delivered, beside the same deliveries with nothing to delete."""
    fill(rig, _OLD, old)
    figures: dict[bool, list[tuple[float, tuple[int, float]]]] = {}
    took_s = 0.0
    with rig.connect() as connection, closing(Planner(rig.dsn)) as planner, rig.receiver(0) as url:
        connection.execute(_JOBS, ("probe", 10 * _SLOTS))
        for cleaning in (False, True):
            retention = {"done_s": 3600 if cleaning else 30 * 86_400, "batch": 5_000, "sweep_s": 1}
            figures[cleaning] = []
            started_s = time.monotonic()
            with rig.relay(url, slots=_SLOTS, retention=retention):
                while rig.row(connection, _ANY_OLD.decode())[0] if cleaning else len(figures[cleaning]) < _PROBES:
                    figures[cleaning].append(_deliver(rig, connection, planner, jobs))
            took_s = time.monotonic() - started_s
    medians = {
        cleaning: [statistics.median(each) for each in zip(*((rate, *cost) for rate, cost in found), strict=True)]
        for cleaning, found in figures.items()
    }
    print(f"\n{old:,} finished rows deleted in {took_s:.0f} s, beside deliveries in bursts of {jobs}")
    print(f"  {'':14}{'jobs/s':>8}{'claim, pages':>14}{'claim, ms':>11}")
    for cleaning, (rate, pages, ms) in medians.items():
        print(f"  {'cleaning' if cleaning else 'not cleaning':14}{rate:8.0f}{pages:14.0f}{ms:11.1f}")
    ratios = [beside / alone for alone, beside in zip(medians[False], medians[True], strict=True)]
    print(f"  {'ratio':14}{ratios[0]:8.2f}{ratios[1]:14.2f}{ratios[2]:11.2f}")
    report.note("cleaned_rows_per_s", old / took_s)
    report.note("cleaning_jobs_ratio", ratios[0])
    report.note("cleaning_claim_pages_ratio", ratios[1], most=1.5)
    report.note("cleaning_claim_ms_ratio", ratios[2])


async def _turn(store: Store, connection: psycopg.Connection, jobs: int, *, keep_done: bool) -> None:
    """Inserts, delivers and deletes so many jobs."""
    asked = [Range("bench", priority, _CHUNK, _CHUNK) for priority in range(4)]
    for _ in range(jobs // _CHUNK):
        connection.execute(_JOBS, ("bench", _CHUNK))
        claimed = (await store.claim(asked, payload_bytes=1 << 30)).jobs
        assert len(claimed) == _CHUNK
        await store.settle([Settlement(job, "done") for job in claimed])
        if keep_done:
            assert (await store.retain_jobs(0.0, limit=_CHUNK)).rows == _CHUNK


async def _turn_over(rig: Rig, live: int, turns: int, *, keep_done: bool) -> tuple[list[dict[str, int]], float]:
    """Pages of the table and of its indexes after each turn, and bytes of write-ahead log a job."""
    fill(rig, _OLD, live)
    sizes: list[dict[str, int]] = []
    with rig.connect() as connection:
        log = rig.row(connection, "SELECT pg_current_wal_insert_lsn()")[0]
        async with Database(rig.dsn, name="turnover", pool_size=1) as database:
            store = Store(database, locked_by="turnover", lease_s=600.0, keep_done=keep_done)
            for _ in range(turns):
                await _turn(store, connection, live, keep_done=keep_done)
                sizes.append(dict(connection.execute(_SIZES.encode()).fetchall()))
        [wal] = rig.row(connection, "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), %s)", log)
    return sizes, float(wal) / (turns * live)


def turn_over(rig: Rig, report: Report, live: int, turns: int) -> None:
    """A table of `live` rows whose jobs are all replaced, so many times; then the same with a settle that deletes."""
    sizes, wal = asyncio.run(_turn_over(rig, live, turns, keep_done=True))
    print(f"\npages after each of {turns} turnovers of {live:,} rows")
    for name in sorted(sizes[0]):
        pages = [each[name] for each in sizes]
        print(f"  {name:16}{' '.join(f'{n:6}' for n in pages)}")
        # The first turns make room for two versions of each row; from then on nothing may grow.
        settled = max(pages[: len(pages) // 2])
        report.note(f"turnover_{name}_growth", (pages[-1] + 1) / (settled + 1), most=1.5 if settled > 10 else None)
    _, deleting = asyncio.run(_turn_over(rig, live, max(1, turns // 5), keep_done=False))
    print(f"  bytes of write-ahead log a job: {wal:.0f} kept and deleted later, {deleting:.0f} deleted by the settle,"
          f" ratio {deleting / wal:.2f}")  # fmt: skip
    report.note("wal_bytes_kept", wal)
    report.note("wal_bytes_deleted_at_settle", deleting)
    report.note("wal_ratio", deleting / wal, most=1.0)


def main() -> int:
    """Measures everything; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="less of each, in under a minute")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    quick, report = arguments.quick, Report()
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    with Nest() as nest, Postgres(nest, tcp=True, options=OPTIONS) as postgres:
        rig = Rig(nest, postgres)
        turn_over(rig, report, 10_000 if quick else 50_000, 5 if quick else 20)
        clean(rig, report, 100_000 if quick else 2_000_000, 300 if quick else 1_000)
        for destinations in (10, 100):
            looks(rig, report, 200_000 if quick else 2_000_000, destinations)
    for fault in report.faults:
        print(f"retain: {fault}", file=sys.stderr)
    if arguments.json:
        print(json.dumps(report.figures))
    return 1 if report.faults else 0


if __name__ == "__main__":
    sys.exit(main())
