"""`make chart-test`: what docs/kubernetes.md says to type works."""

import re
from pathlib import Path

import psycopg
import pytest
import yaml

from relay.demo.nest import Nest
from relay.demo.postgres import Postgres
from relay.telemetry import instruments
from tests.chart.helm import CHART, Engine, Helm4
from tests.chart.kubelet import lay_out
from tests.chart.pod import one
from tests.docs.pages import snippet, text

PAGE = "docs/kubernetes.md"
EXAMPLES = re.findall(r"<!-- test: (values \w+) -->", text(PAGE))


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_of_values_is_taken(engine: Engine, example: str) -> None:
    values = yaml.safe_load(snippet(PAGE, example))
    assert engine.lint(values) == []
    assert engine.render(values)


async def test_the_roles_are_enough_to_install(tmp_path: Path) -> None:
    # A cluster of its own: roles belong to the whole of one.
    with Nest() as nest, Postgres(nest, options={"fsync": "off"}, tcp=True) as postgres:
        app = postgres.create_database("app")
        async with await psycopg.AsyncConnection.connect(app, autocommit=True) as superuser:
            await superuser.execute("CREATE ROLE shop LOGIN")
            await superuser.execute(snippet(PAGE, "sql install").encode())
        rendered = Helm4().render(yaml.safe_load(snippet(PAGE, "values install")))
        content = {
            "relay-owner": app.replace("postgres@", "outbox_owner@"),
            "relay-database": app.replace("postgres@", "relay@"),
            "relay-billing": "whsec_" + "QUJD" * 8,
        }
        for number, owner in enumerate(("Job relay-setup", "Pod relay-check")):
            await lay_out(rendered, owner, tmp_path / str(number), content).run()
        async with await psycopg.AsyncConnection.connect(app.replace("postgres@", "shop@"), autocommit=True) as shop:
            await shop.execute("INSERT INTO outbox.job (topic, payload) VALUES ('order.paid', '{}')")


def test_the_alerts_and_dashboards_of_the_chart_are_what_is_installed(engine: Engine) -> None:
    rendered = engine.render(yaml.safe_load(snippet(PAGE, "values monitoring")))
    alerts, dashboards = one(rendered, "PrometheusRule"), one(rendered, "ConfigMap", "relay-dashboards")
    assert alerts["spec"] == yaml.safe_load((CHART / "rules/relay.yaml").read_text())
    files = {file.name: file.read_text() for file in (CHART / "dashboards").glob("*.json")}
    assert files
    assert dashboards["data"] == files


def test_the_metric_to_scale_by_is_one_of_the_relays() -> None:
    assert set(re.findall(r"relay_\w+", text(PAGE))) == {"relay_backlog_age_seconds"}
    assert "relay.backlog.age" in Path(instruments.__file__).read_text()


def test_kedas_object_scales_the_charts_deployment(engine: Engine) -> None:
    target = yaml.safe_load(snippet(PAGE, "keda"))["spec"]["scaleTargetRef"]["name"]
    deployments = [
        each for each in engine.render({"config": {"database": {"dsn": "host=db"}}}) if each["kind"] == "Deployment"
    ]
    assert [each["metadata"]["name"] for each in deployments] == [target]
