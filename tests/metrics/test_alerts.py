"""The alerts fire on what a real replica shows in trouble, and on nothing else; the dashboard shows all of it.

A replica is scraped twice, and promtool is told that each series goes on as it did between the two.
"""

import asyncio
import json
import subprocess
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web as http
from ruamel.yaml import YAML

from tests.conftest import Connection
from tests.docs.pages import ROOT, inline_code, table
from tests.metrics.scrape import Scrape, Web
from tests.receiver import Arrival, Receiver, status
from tests.service.replica import Installation

RULES = ROOT / "charts/relay/rules/relay.yaml"
DASHBOARD = ROOT / "charts/relay/dashboards/relay.json"
MINUTES = 60
TROUBLE = {
    "RelayBacklogOld",
    "RelayBreakerOpen",
    "RelayDeadLettersGrowing",
    "RelayDestinationPaused",
    "RelayLanesBlocked",
    "RelayLeasesLost",
    "RelayOrphanedJobs",
    "RelayUnroutedGrowing",
    "RelayVacuumHeldBack",
}


def alerts() -> dict[str, dict[str, Any]]:
    """The rules by their names."""
    [group] = YAML(typ="safe").load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


@dataclass(frozen=True)
class Course:
    """Two scrapes, and the seconds between them."""

    first: Scrape
    second: Scrape
    seconds: float

    def series(self, goes_on: Callable[[str], bool]) -> list[dict[str, str]]:
        """Each series from the second scrape on, a value a minute; at a standstill unless its name `goes_on`."""
        found = []
        for (name, labels), value in self.second.series.items():
            before = self.first.series.get((name, labels), 0.0)
            growth = (value - before) / self.seconds * 60 if goes_on(name) else 0.0
            text = ", ".join(f'{key}="{each}"' for key, each in sorted(labels | {("instance", "one")}))
            found.append({"series": f"{name}{{{text}}}", "values": f"{value:.6f}{growth:+.6f}x{MINUTES}"})
        return found


async def course(web: Web, enough: Callable[[Scrape], bool], first: Scrape, since_s: float) -> Course:
    """From `first`, taken at `since_s` (monotonic), to the next scrape that satisfies `enough`."""
    second = await web.scraped(enough)
    return Course(first, second, time.monotonic() - since_s)


async def finds(folder: Path, series: list[dict[str, str]], expected: Mapping[str, Collection[str]]) -> str:
    """What promtool has against each expression having, after an hour, 1 for these labels; nothing when it agrees."""
    file = folder / "test.yaml"
    test = {
        "interval": "1m",
        "input_series": series,
        "promql_expr_test": [
            {
                "expr": expression,
                "eval_time": f"{MINUTES}m",
                "exp_samples": [{"labels": each, "value": 1} for each in sorted(labels)],
            }
            for expression, labels in expected.items()
        ],
    }
    with file.open("w") as out:
        YAML(typ="safe").dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]}, out)
    done = await asyncio.to_thread(
        subprocess.run, ["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


def alerting(among: str = ".+", by: str = "alertname") -> str:
    """The alerts of these names that fire, by one of their labels."""
    return f'group by ({by}) (ALERTS{{alertstate="firing", alertname=~"{among}"}})'


async def firing(folder: Path, series: list[dict[str, str]], expected: set[str], among: str = ".+") -> str:
    """What promtool has against `expected` being the alerts that fire after an hour; nothing when it agrees."""
    return await finds(folder, series, {alerting(among): [f'{{alertname="{name}"}}' for name in expected]})


def panels() -> list[str]:
    """Every expression of the dashboard, with what Grafana puts in the place of its variables."""
    found = [
        target["expr"] for panel in json.loads(DASHBOARD.read_text())["panels"] for target in panel.get("targets", [])
    ]
    return [each.replace("$__rate_interval", "5m").replace("$destination", ".*") for each in found]


def test_promtool_accepts_the_rules() -> None:
    done = subprocess.run(["promtool", "check", "rules", str(RULES)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tested_here() -> None:
    assert alerts().keys() == TROUBLE | {
        "RelayConfigurationRefused", "RelayLaneHealed", "RelayNoProgress", "RelayReplicaAbsent",
    }  # fmt: skip


def test_the_operators_page_has_a_row_for_every_alert_with_its_severity_and_no_other() -> None:
    rows = [(*inline_code(row[0]), row[1]) for row in table("docs/operations.md", "alert")]
    assert rows == [(name, rule["labels"]["severity"]) for name, rule in alerts().items()]


async def test_without_a_replica_one_alert_fires(tmp_path: Path) -> None:
    assert await firing(tmp_path, [], {"RelayReplicaAbsent"}) == ""


async def test_one_lane_that_stood_still_without_a_reason_makes_its_alert_fire(tmp_path: Path) -> None:
    healed = {"series": 'relay_lanes_healed_total{instance="one"}', "values": f"0x{MINUTES - 10} 1x10"}
    assert await firing(tmp_path, [healed], {"RelayLaneHealed"}, among="RelayLaneHealed") == ""


@pytest.fixture
async def replica(installation: Installation, web: Web, receiver: Receiver) -> None:
    """One replica with destinations of all kinds, and nothing wrong yet. It answers where `web` asks."""
    assert installation.environment["RELAY_WEB_PORT"] == str(web.port)
    installation.configure(
        {
            "shop": {"url": receiver.url("/shop"), "topics": ["order.*"]},
            "slow": {"url": receiver.url("/slow"), "max_in_flight": 1},
            "refusing": {"url": receiver.url("/refusing"), "permanent_statuses": [400]},
            "broken": {"url": receiver.url("/broken")},
            "closed": {"url": receiver.url("/closed")},
        },
        retention={"sweep_s": 0.25},
    )
    assert (await installation.command("sync")).code == 0
    await installation.start()


async def insert(connection: Connection, destination: str | None, jobs: int = 1, entity: str | None = None) -> None:
    """Due jobs of a topic that only `shop` would get."""
    await connection.execute(
        "INSERT INTO outbox.job (topic, destination, entity_key, payload)"
        " SELECT 'unheard', %s, %s, '{}' FROM generate_series(1, %s)",
        (destination, entity, jobs),
    )


@pytest.mark.usefixtures("replica")
async def test_a_replica_at_work_makes_no_alert_fire(tmp_path: Path, web: Web, connection: Connection) -> None:
    first, since_s = await web.scraped(lambda s: "relay_backlog_due" in s.names), time.monotonic()
    await insert(connection, "shop", 20)
    seen = await course(web, lambda s: s.value("relay_jobs_delivered_total", destination="shop") == 20, first, since_s)
    assert await firing(tmp_path, seen.series(lambda name: name.endswith("_total")), set()) == ""


@pytest.fixture
async def troubled(
    replica: None, installation: Installation, web: Web, receiver: Receiver, connection: Connection, database: str
) -> Course:
    """What a replica shows with every trouble at once."""
    assert replica is None
    late, never = asyncio.Event(), asyncio.Event()

    async def answer(arrival: Arrival) -> http.StreamResponse:
        if arrival.path == "/slow":
            first = arrival.key == next(each.key for each in receiver.arrivals if each.path == "/slow")
            await (late if first else never).wait()
        return await status({"/refusing": 400, "/broken": 500}.get(arrival.path, 204))(arrival)

    receiver.answer = answer
    await installation.command("pause", "closed", "--why", "a test")
    await insert(connection, "slow", 3)
    await insert(connection, "refusing", 2, entity="e")
    await insert(connection, "broken", 30)
    await insert(connection, "nobody")
    await connection.execute("INSERT INTO outbox.destination (name) VALUES ('elsewhere')")
    await insert(connection, "elsewhere")
    async with await type(connection).connect(database) as idle:
        await idle.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await idle.execute("SELECT 1 FROM outbox.job")
        first = await web.scraped(
            lambda s: (
                max(s.value("relay_breaker_state", destination="broken", reason=r) for r in ("open", "half_open")) > 0
                and s.value("relay_lanes_blocked", destination="refusing", reason="dead") == 1
                and s.value("relay_vacuum_held_seconds") > 0
                and s.value("relay_backlog_age_seconds", destination="slow") > 0
                and s.value("relay_slots_used", destination="slow") == 1
                and s.value("relay_destination_paused", destination="closed") == 1
            )
        )
        since_s = time.monotonic()
        await connection.execute(
            "UPDATE outbox.job SET locked_by = 'thief' WHERE destination = 'slow' AND status = 'running'"
        )
        late.set()
        await insert(connection, "refusing")
        await insert(connection, None)
        return await course(
            web,
            lambda s: (
                s.value("relay_jobs_fenced_total", destination="slow") == 1
                and s.value("relay_jobs_dead_total", destination="refusing") == 2
                and s.value("relay_jobs_unrouted") == 1
                and s.value("relay_vacuum_held_seconds") > first.value("relay_vacuum_held_seconds") + 1
            ),
            first,
            since_s,
        )


async def test_each_trouble_makes_its_alert_fire(tmp_path: Path, troubled: Course) -> None:
    expected = {
        alerting("|".join(TROUBLE)): [f'{{alertname="{name}"}}' for name in TROUBLE],
        # A destination that no replica has, and one that nobody registered.
        alerting("RelayOrphanedJobs", by="destination"): ['{destination="elsewhere"}', '{destination="nobody"}'],
    }
    assert await finds(tmp_path, troubled.series(lambda _: True), expected) == ""


async def test_in_trouble_no_panel_of_the_dashboard_is_empty(tmp_path: Path, troubled: Course) -> None:
    shown = {f"group({each})": ["{}"] for each in panels()}
    assert len(shown) > 30
    assert await finds(tmp_path, troubled.series(lambda _: True), shown) == ""


@pytest.mark.usefixtures("replica")
async def test_unrouted_jobs_beyond_what_is_counted_keep_their_alert_firing(
    tmp_path: Path, web: Web, connection: Connection
) -> None:
    first, since_s = await web.scrape(), time.monotonic()
    await insert(connection, None, 5_001)
    seen = await course(web, lambda s: s.series.get(("relay_jobs_unrouted", frozenset())) == 5_000, first, since_s)
    assert await firing(tmp_path, seen.series(lambda _: False), {"RelayUnroutedGrowing"}) == ""


@pytest.mark.usefixtures("replica")
async def test_a_refused_configuration_makes_its_alert_fire(
    tmp_path: Path, installation: Installation, web: Web
) -> None:
    first, since_s = await web.scraped(lambda s: s.value("relay_config_outdated") == 0), time.monotonic()
    installation.configure({"shop": {"url": "not a URL"}})
    seen = await course(web, lambda s: s.value("relay_config_outdated") == 1, first, since_s)
    expected = {"RelayConfigurationRefused"}
    assert await firing(tmp_path, seen.series(lambda _: False), expected, among="RelayConfigurationRefused") == ""


@pytest.mark.usefixtures("replica")
async def test_a_loop_that_cannot_get_on_makes_its_alert_fire(tmp_path: Path, web: Web, connection: Connection) -> None:
    first = await web.scraped(lambda s: "relay_backlog_due" in s.names)
    async with connection.transaction():
        await connection.execute("LOCK TABLE outbox.attempt IN ACCESS EXCLUSIVE MODE")
        first = await web.scraped(lambda s: s.value("relay_loop_behind_seconds", loop="retain") > 0.5)
        since_s = time.monotonic()
        seen = await course(web, lambda s: s.value("relay_loop_behind_seconds", loop="retain") > 1.5, first, since_s)
    growing = seen.series(lambda name: name == "relay_loop_behind_seconds")
    assert await firing(tmp_path, growing, {"RelayNoProgress"}) == ""
