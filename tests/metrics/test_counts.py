"""A replica's counts are what happened, and promtool has nothing to say against how they are told."""

import asyncio
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from aiohttp import web as http
from opentelemetry.exporter import prometheus as prometheus_reader
from opentelemetry.sdk.metrics.export import MetricsData

from relay.telemetry.instruments import DISTRIBUTIONS, INSTRUMENTS, Sources
from relay.telemetry.metrics import Metrics
from relay.telemetry.tally import Tally
from tests.conftest import Connection
from tests.metrics.scrape import Scrape, Web
from tests.receiver import Arrival, Receiver
from tests.service.replica import Installation


def prometheus(name: str, unit: str, kind: str) -> str:
    """The name that Prometheus has for an instrument."""
    seconds = "_seconds" if unit == "s" else ""
    return name.replace(".", "_") + seconds + ("_total" if kind == "counter" else "")


async def by_topic(arrival: Arrival) -> http.Response:
    """200 for the jobs of one topic, 500 once and 400 always for those of others."""
    topic = arrival.headers["Relay-Topic"]
    if topic == "refused":
        return http.Response(status=400)
    if topic == "once" and arrival.headers["Relay-Attempt"] == "1":
        return http.Response(status=500)
    return http.Response(status=200)


async def test_delivered_failed_retried_and_dead_jobs_are_counted_once_each(
    installation: Installation, web: Web, receiver: Receiver, connection: Connection
) -> None:
    receiver.answer = by_topic
    installation.configure({"shop": {"url": receiver.url(), "permanent_statuses": [400]}})
    await connection.execute(
        "INSERT INTO outbox.job (topic, destination, payload)"
        " SELECT topic, 'shop', '{}' FROM unnest('{fine,fine,fine,once,once,refused}'::text[]) topic"
    )
    await installation.start()
    scrape = await web.scraped(
        lambda s: (
            s.value("relay_jobs_delivered_total", destination="shop") == 5
            and s.value("relay_jobs_dead_total", destination="shop") == 1
        )
    )
    assert scrape.value("relay_jobs_claimed_total", destination="shop") == 8
    assert scrape.value("relay_jobs_retried_total", destination="shop") == 2
    assert scrape.value("relay_attempts_failed_total", destination="shop", error_class="status") == 3
    assert scrape.value("relay_attempts_failed_total", destination="shop", error_class="connect") == 0
    assert scrape.value("relay_attempt_duration_seconds_count", destination="shop") == 8
    assert scrape.value("relay_delivery_latency_seconds_count", destination="shop") == 5
    assert scrape.value("relay_claim_size_sum") == 8
    assert scrape.value("relay_settle_size_sum") == 8
    for statement in ("claim", "settle"):
        executed = scrape.value(f"relay_{statement}_size_count")
        assert executed >= 1
        assert scrape.value(f"relay_{statement}_duration_seconds_count") == executed
        assert scrape.value(f"relay_{statement}_duration_seconds_sum") > 0


async def test_the_latency_of_a_delivery_begins_with_the_insert_by_the_databases_clock(
    installation: Installation, web: Web, receiver: Receiver, connection: Connection
) -> None:
    installation.configure({"shop": {"url": receiver.url()}})
    await connection.execute("INSERT INTO outbox.job (topic, destination, payload) VALUES ('t', 'shop', '{}')")
    await connection.execute("UPDATE outbox.job SET created_at = now() - interval '10 min'")
    await installation.start()
    scrape = await web.scraped(lambda s: s.value("relay_delivery_latency_seconds_count", destination="shop") == 1)
    assert 600 <= scrape.value("relay_delivery_latency_seconds_sum", destination="shop") < 700
    assert scrape.value("relay_delivery_latency_seconds_bucket", destination="shop", le="300.0") == 0
    assert scrape.value("relay_attempt_duration_seconds_sum", destination="shop") < 60


async def test_a_lease_that_lapsed_is_counted_by_who_reclaims_it_and_its_late_outcome_by_who_had_it(
    installation: Installation, web: Web, receiver: Receiver, connection: Connection
) -> None:
    answering = asyncio.Event()

    async def wait(_arrival: Arrival) -> http.Response:
        await answering.wait()
        return http.Response(status=204)

    receiver.answer = wait
    installation.configure({"shop": {"url": receiver.url()}})
    await connection.execute("INSERT INTO outbox.job (topic, destination, payload) VALUES ('t', 'shop', '{}')")
    await installation.start()
    await receiver.wait_arrived(1)
    await connection.execute("UPDATE outbox.job SET locked_until = now() - interval '1 s' WHERE status = 'running'")
    scrape = await web.scraped(lambda s: s.value("relay_jobs_reclaimed_total", destination="shop") == 1)
    assert scrape.value("relay_attempts_failed_total", destination="shop", error_class="lease_expired") == 1
    await receiver.wait_arrived(2)
    answering.set()
    scrape = await web.scraped(lambda s: s.value("relay_jobs_delivered_total", destination="shop") == 1)
    await web.scraped(lambda s: s.value("relay_jobs_fenced_total", destination="shop") == 1)


async def test_a_lease_that_a_renewal_finds_to_be_somebody_elses_is_counted(
    installation: Installation, web: Web, receiver: Receiver, connection: Connection
) -> None:
    async def never(_arrival: Arrival) -> http.Response:
        await asyncio.Event().wait()
        raise AssertionError

    receiver.answer = never
    # The shortest lease that there is for an attempt that is still under way when it is renewed, after a third.
    installation.configure(
        {"shop": {"url": receiver.url(), "deadline_s": 3.9}},
        replica={"lease_s": 9},
        defaults={"deadline_s": 3.9},
    )
    await connection.execute("INSERT INTO outbox.job (topic, destination, payload) VALUES ('t', 'shop', '{}')")
    await installation.start()
    await receiver.wait_arrived(1)
    assert (await web.scrape()).value("relay_leases_lost_total") == 0
    await connection.execute("UPDATE outbox.job SET locked_by = 'thief' WHERE status = 'running'")
    await web.scraped(lambda s: s.value("relay_leases_lost_total") == 1)


async def test_the_pool_is_shown_with_who_waits_for_it(
    installation: Installation, web: Web, receiver: Receiver, connection: Connection
) -> None:
    installation.configure({"shop": {"url": receiver.url()}}, database={"pool_size": 3})
    await installation.start()
    idle = await web.scraped(lambda s: s.value("relay_pool_idle") > 0 and s.value("relay_pool_waiting") == 0)
    assert idle.value("relay_pool_limit") == 3
    assert idle.value("relay_pool_idle") <= idle.value("relay_pool_connections") <= 3
    async with connection.transaction():
        await connection.execute("LOCK TABLE outbox.job, outbox.attempt IN ACCESS EXCLUSIVE MODE")
        await web.scraped(
            lambda s: (
                s.value("relay_pool_connections") == 3
                and s.value("relay_pool_idle") == 0
                and s.value("relay_pool_waiting") > 0
            )
        )


async def test_slots_and_the_breaker_are_shown_as_they_are(
    installation: Installation, web: Web, receiver: Receiver, connection: Connection
) -> None:
    answering = asyncio.Event()

    async def wait(_arrival: Arrival) -> http.Response:
        await answering.wait()
        return http.Response(status=503, headers={"Retry-After": "1000"})

    receiver.answer = wait
    installation.configure({"shop": {"url": receiver.url(), "max_in_flight": 5}})
    await connection.execute(
        "INSERT INTO outbox.job (topic, destination, payload) SELECT 't', 'shop', '{}' FROM generate_series(1, 3)"
    )
    await installation.start()
    await receiver.wait_arrived(3)
    scrape = await web.scrape()
    assert scrape.value("relay_slots_used", destination="shop") == 3
    assert scrape.value("relay_slots_limit", destination="shop") == 5
    assert scrape.value("relay_breaker_state", destination="shop", reason="held") == 0
    answering.set()
    await web.scraped(lambda s: s.value("relay_breaker_state", destination="shop", reason="held") == 1)


async def test_promtool_finds_nothing_and_every_metric_of_the_table_is_there_and_no_other(
    installation: Installation, web: Web, receiver: Receiver, connection: Connection
) -> None:
    installation.configure({"shop": {"url": receiver.url()}})
    await installation.command("sync")
    await connection.execute("INSERT INTO outbox.job (topic, destination, payload) VALUES ('t', 'shop', '{}')")
    await installation.start()
    scrape = await web.scraped(lambda s: "relay_backlog_due" in s.names)
    done = await asyncio.to_thread(
        subprocess.run, ["promtool", "check", "metrics"], input=scrape.text.encode(), capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    told = {name for line in scrape.text.splitlines() if line.startswith("# TYPE") for name in [line.split()[2]]}
    assert told == {prometheus(each.name, each.unit, each.kind) for each in (*INSTRUMENTS, *DISTRIBUTIONS)}


def at_rest() -> Sources:
    """What a replica has to show that has done nothing yet."""
    return Sources(
        tally=Tally(["shop"]),
        leases_lost=lambda: 0,
        lanes_healed=lambda: 0,
        slots=list,
        behind_s=list,
        pool=lambda: dict.fromkeys(("pool_size", "pool_max", "pool_available", "requests_waiting"), 0),
        sample=list,
        sample_age_s=float,
        outdated=bool,
    )


def test_the_page_is_there_where_the_sdk_is_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    scrape = Scrape(Metrics(at_rest(), None, replica="test").text().decode())
    assert scrape.value("relay_jobs_delivered_total", destination="shop") == 0


def test_scrapes_at_the_same_time_get_each_series_once(monkeypatch: pytest.MonkeyPatch) -> None:
    collector, add = prometheus_reader._CustomCollector, prometheus_reader._CustomCollector.add_metrics_data

    def add_slowly(self: prometheus_reader._CustomCollector, data: MetricsData) -> None:
        # Between what is collected and what is written there is a moment, and here it is a long one.
        add(self, data)
        time.sleep(0.01)

    monkeypatch.setattr(collector, "add_metrics_data", add_slowly)
    metrics = Metrics(at_rest(), None, replica="test")
    with ThreadPoolExecutor(8) as threads:
        scrapes = [Scrape(text.decode()) for text in threads.map(lambda _: metrics.text(), range(64))]
    assert {len(scrape.series) for scrape in scrapes} == {len(scrapes[0].series)}
