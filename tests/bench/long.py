"""The tables of the long form, each printed as soon as it is measured."""

from relay.demo.nest import Nest
from relay.demo.postgres import Postgres
from tests.bench import insert, load, many, replicas, size, workers
from tests.bench.measure import Bench
from tests.bench.rig import Rig
from tests.bench.sides import RELAY, watched
from tests.bench.steady import steady

IN_FLIGHT = (64, 256, 1024)
ANSWER_S = 0.1


def old_backlog(bench: Bench, jobs: int) -> dict[str, object]:
    """The log of jobs that waited through a checkpoint."""
    old = bench.deliveries(RELAY, jobs, 500, checkpoint=True)
    print(f"\nof a backlog older than the last checkpoint: {old.wal_bytes / old.jobs:.0f} bytes of WAL a job, since "
          "the first change of each page logs it whole", flush=True)  # fmt: skip
    return {"wal_bytes_per_job_after_a_checkpoint": round(old.wal_bytes / old.jobs)}


def under_load(nest: Nest, postgres: Postgres, seconds: float) -> None:
    """How long jobs are on their way at a part of what a replica can do."""
    print("\nfrom commit to receiver under load:")
    print(f"{'':28}{'of most':>8}{'jobs/s':>8}{'p50 ms':>8}{'p99 ms':>8}{'p99.9 ms':>10}")
    for loaded in load.loaded(nest, postgres, seconds):
        print(f"{loaded.way:28}{loaded.share:8.2f}{loaded.share * loaded.most_per_s:8.0f}{loaded.percentile(50):8.1f}"
              f"{loaded.percentile(99):8.1f}{loaded.percentile(99.9):10.1f}", flush=True)  # fmt: skip


def slow_receivers(nest: Nest, postgres: Postgres, seconds: float) -> dict[str, object]:
    """Receivers that take 100 ms, at several numbers in flight."""
    print(f"\nreceivers that take 100 ms:\n{'in flight':>10}{'jobs/s':>8}{'of ideal':>10}{'of a core':>11}")
    found = [steady(nest, postgres, RELAY, in_flight, ANSWER_S, seconds) for in_flight in IN_FLIGHT]
    for each in found:
        print(f"{each.in_flight:10}{each.per_s:8.0f}{each.of_ideal:10.2f}{each.client_core:11.2f}", flush=True)
    return {"of_ideal_with_100_ms": {each.in_flight: round(each.of_ideal, 3) for each in found}}


def memory(nest: Nest, postgres: Postgres) -> None:
    """A replica beside a backlog, with many in flight, with large payloads."""
    print(f"\nresident memory of a replica in MiB:\n{'':44}{'idle':>6}{'most':>6}")
    for sized in size.sizes(nest, postgres):
        print(f"{sized.case:44}{sized.idle_mib:6.0f}{sized.peak_mib:6.0f}", flush=True)


def on_one_core(jobs: int) -> None:
    """More and more replicas, and PostgreSQL on one core."""
    print(f"\nPostgreSQL on one core:\n{'replicas':>9}{'jobs/s':>8}{'their cores':>12}{'PG core':>9}{'PG ms':>7}"
          f"{'connections':>13}  where its sessions are")  # fmt: skip
    for number in replicas.REPLICAS:
        # A server of its own for each, or the garbage of one would be the next one's work.
        with Nest() as nest, watched(nest, core=0) as postgres:
            each = replicas.scaled(nest, postgres, number, jobs)
        waits = ", ".join(f"{name} {count / each.waits.total():.0%}" for name, count in each.waits.most_common(4))
        print(f"{each.replicas:9}{each.per_s:8.0f}{each.client_core:12.2f}{each.postgres_core:9.2f}"
              f"{each.postgres_ms:7.3f}{each.connections:13}  {waits}", flush=True)  # fmt: skip


def beside(nest: Nest, postgres: Postgres, bench: Bench, jobs: int, seconds: float) -> dict[str, object]:
    """What needs a server that is its own."""
    report = old_backlog(bench, jobs)
    under_load(nest, postgres, seconds)
    report |= slow_receivers(nest, postgres, seconds)
    many.table(many.many(nest, postgres, seconds))
    memory(nest, postgres)
    insert.table(insert.inserts(Rig(nest, postgres, "inserts"), postgres, 1.5, 3))
    return report


def alone(jobs: int, seconds: float) -> None:
    """What starts servers of its own, each on one core."""
    workers.table(workers.workers(seconds))
    on_one_core(jobs)
