"""What tracing costs: deliveries per CPU second of one replica with it off, at 1 % and at 100 %, side by side.

    python -m tests.bench.tracing [--rounds 9] [--jobs 10000]

Every job has a producer's context; at 1 % one in a hundred is sampled. In each round the three take turns, and their
ratios are taken within the round, so that what the machine does besides hits all of them. The CPU time is that of the
replica's process, its exporter included, until it has ended and exported everything.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping

import httpx
import psycopg

from relay.demo.nest import Nest
from relay.demo.postgres import Postgres
from tests.bench import cpu
from tests.bench.rig import ENVIRONMENT, NAME, ROOT, Rig

SHARES = {"off": 1.0, "1 %": 0.01, "100 %": 1.0}
SLOTS = 64
WARM_UP = 600  # more than the SDK's batch of 512 spans
_STARTED = b"SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'relay %'"
_LEFT = b"SELECT count(*) FROM outbox.job WHERE status <> 'done'"
_INSERT = b"""
INSERT INTO outbox.job (topic, destination, payload, traceparent)
SELECT 'bench', 'bench', to_json(repeat('x', 498)),
       '00-' || md5(n::text) || '-' || left(md5(n::text), 16)
       || CASE WHEN n %% 100 < 100 * %(share)s THEN '-01' ELSE '-00' END
  FROM generate_series(1, %(jobs)s) AS n
"""


def variables(side: str, collector: str) -> Mapping[str, str]:
    """The environment of a replica: without OpenTelemetry's variables, or exporting that share."""
    clean = {name: value for name, value in ENVIRONMENT.items() if not name.startswith("OTEL_")}
    if side == "off":
        return clean
    return {
        **clean,
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": collector,
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
        "OTEL_TRACES_SAMPLER_ARG": str(SHARES[side]),
    }


def deliveries_per_cpu_s(
    rig: Rig, connection: psycopg.Connection, config: str, side: str, jobs: int, collector: str
) -> float:
    """One replica delivers so many jobs."""
    rig.empty(connection)
    argv = [sys.executable, "-m", "relay", "-c", config]
    environment = variables(side, collector)
    subprocess.run([*argv, "sync"], env=environment, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    replica = subprocess.Popen([*argv, "run"], env=environment, cwd=ROOT, stdout=sys.stderr)
    while connection.execute(_STARTED).fetchone() == (0,):
        assert replica.poll() is None, "the replica did not start"
        time.sleep(0.05)
    # What comes first opens connections, and the first batch that is full imports what exports it.
    _deliver(connection, replica, WARM_UP, share=1.0)
    while side != "off" and not httpx.get(collector, trust_env=False).json()["requests"]:
        time.sleep(0.05)
    before_s = cpu.process_s(replica.pid)
    _deliver(connection, replica, jobs, share=SHARES[side])
    replica.terminate()
    _, status, usage = os.wait4(replica.pid, 0)
    replica.returncode = os.waitstatus_to_exitcode(status)
    assert replica.returncode == 0, f"the replica failed with tracing {side}"
    return jobs / (usage.ru_utime + usage.ru_stime - before_s)


def _deliver(connection: psycopg.Connection, replica: subprocess.Popen[bytes], jobs: int, *, share: float) -> None:
    connection.execute(_INSERT, {"share": share, "jobs": jobs})
    while connection.execute(_LEFT).fetchone() != (0,):
        assert replica.poll() is None, "the replica ended early"
        time.sleep(0.05)


def rounds(rig: Rig, config: str, collector: str, *, number: int, jobs: int) -> dict[str, list[float]]:
    """Deliveries per CPU second of each side in each round; the sides begin in turn."""
    found: dict[str, list[float]] = {side: [] for side in SHARES}
    order = list(SHARES)
    with rig.connect() as connection:
        for _ in range(number):
            for side in order:
                found[side].append(deliveries_per_cpu_s(rig, connection, config, side, jobs, collector))
            order = [*order[1:], order[0]]
    return found


def main() -> None:
    """Prints the table; the last line is JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--jobs", type=int, default=10_000)
    arguments = parser.parse_args()
    with Nest() as nest, Postgres(nest, tcp=True) as postgres:
        rig = Rig(nest, postgres)
        with rig.receiver(0) as url, rig.receiver(0) as collector:
            config = nest.path / "tracing.yaml"
            destination = {"url": url, "secrets": [{"env": "BENCH_SECRET"}], "max_in_flight": SLOTS}
            config.write_text(
                json.dumps(
                    {"database": {"dsn": rig.dsn}, "log": {"level": "warning"}, "destinations": {NAME: destination}}
                )
            )
            found = rounds(rig, str(config), collector, number=arguments.rounds, jobs=arguments.jobs)
    report(found, arguments.jobs)


def report(found: Mapping[str, list[float]], jobs: int) -> None:
    """The medians, and of the ratios within each round the median, least and most."""
    print(f"\n{len(found['off'])} paired rounds of {jobs} jobs, {SLOTS} in flight\n")
    print(f"{'tracing':10}{'deliveries per CPU s':>22}{'of off':>9}{'least':>8}{'most':>8}")
    figures: dict[str, float] = {"rounds": len(found["off"]), "jobs": jobs}
    for side, each in found.items():
        ratios = [mine / off for mine, off in zip(each, found["off"], strict=True)]
        median, ratio = statistics.median(each), statistics.median(ratios)
        print(f"{side:10}{median:22.0f}{ratio:9.2f}{min(ratios):8.2f}{max(ratios):8.2f}")
        name = side.removesuffix(" %")
        figures[f"deliveries_per_cpu_s_{name}"] = round(median)
        figures[f"ratio_{name}"] = round(ratio, 3)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
