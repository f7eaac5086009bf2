"""`make chart-test`: the real relay with what the chart gives a pod: its files, its variables, its ports."""

import asyncio
import json
import signal
import socket
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from relay.config import load
from relay.demo.nest import Nest
from relay.errors import ConfigError
from tests.chart.helm import ROOT, Engine, Helm4, RefusedError
from tests.chart.kubelet import MOUNT, lay_out
from tests.chart.matrix import BILLING, DATABASE, MATRIX
from tests.chart.pod import one, specs
from tests.receiver import Receiver

# What the Secrets hold; every other key is a text of no meaning.
CONTENT = {
    "relay-database": "postgresql://relay:secret@db.example/app",
    "relay-billing": "whsec_" + "QUJD" * 8,
    "relay-proxy": "http://proxy.example:3128",
    "owner": "postgresql://owner@db.example/app",
}


@pytest.mark.parametrize("row", MATRIX)
def test_every_pod_reads_its_configuration(row: str, tmp_path: Path) -> None:
    rendered = Helm4().render(MATRIX[row])
    for number, owner in enumerate(specs(rendered)):
        settings = lay_out(rendered, owner, tmp_path / str(number), CONTENT).settings()
        assert {each.name for each in settings.resolved_destinations()} == set(MATRIX[row].get("destinations", {}))


@pytest.mark.parametrize("row", MATRIX)
def test_probes_ports_and_patience_are_those_of_the_settings(row: str, tmp_path: Path) -> None:
    rendered = Helm4().render(MATRIX[row])
    owner = next(name for name in specs(rendered) if name.startswith("Deployment"))
    pod = lay_out(rendered, owner, tmp_path, CONTENT)
    settings, [container] = pod.settings(), pod.spec["containers"]
    assert container["ports"] == [{"name": "web", "containerPort": settings.web.port}]
    assert {container[probe]["httpGet"]["port"] for probe in container if probe.endswith("Probe")} == {"web"}
    assert settings.web.host in {"0.0.0.0", "::"}
    assert pod.spec["terminationGracePeriodSeconds"] == settings.replica.termination_grace_s


def test_every_value_of_the_configuration_arrives(tmp_path: Path) -> None:
    rendered = Helm4().render(MATRIX["rich destinations"])
    settings = lay_out(rendered, "Deployment relay", tmp_path, CONTENT).settings()
    billing, search = settings.destinations["billing"], settings.destinations["search"]
    assert settings.database.dsn.text() == CONTENT["relay-database"]
    assert settings.database.listen_dsn is not None
    assert settings.replica.payload_budget_bytes == 1 << 30
    assert settings.registry.generation == 7
    assert (billing.retry.max_attempts, billing.rate_per_s, len(billing.secrets)) == (20, 50, 2)
    assert billing.tls.client_key_file == f"{tmp_path}{MOUNT}/secrets/relay-client/tls.key"
    assert (search.on_dead, search.egress, search.deadline_s) == ("skip", ("10.0.0.0/8",), 30)
    assert (tmp_path / "run/relay/secrets/database-ca/ca.crt").exists()


@pytest.mark.parametrize("deadline_s", [9, 14.9, 15, 20, 45, 60])
@pytest.mark.parametrize("drain_s", [10, 20, 25, 50])
@pytest.mark.parametrize("lease_s", [20, 50, 90])
def test_the_chart_refuses_deadlines_exactly_where_the_relay_does(
    engine: Engine, deadline_s: float, drain_s: float, lease_s: float, tmp_path: Path
) -> None:
    config = {"replica": {"drain_s": drain_s, "lease_s": lease_s}, "defaults": {"deadline_s": deadline_s}}
    stated = {"database": {"dsn": "host=db"}, **config}
    (tmp_path / "relay.yaml").write_text(
        json.dumps(stated | {"replica": config["replica"] | {"termination_grace_s": 99}})
    )
    try:
        load(tmp_path / "relay.yaml", {})
        taken = True
    except ConfigError:
        taken = False
    try:
        engine.render({"config": stated})
        rendered = True
    except RefusedError:
        rendered = False
    assert rendered == taken


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_the_setup_job_of_a_release_without_destinations_only_migrates() -> None:
    # `relay sync` refuses to register nothing, and an installation would fail with it.
    for row, verbs in (("smallest", ["migrate"]), ("one destination", ["migrate", "sync"])):
        pod = one(Helm4().render(MATRIX[row]), "Job", "relay-setup")["spec"]["template"]["spec"]
        containers = [*pod.get("initContainers", []), *pod["containers"]]
        assert [each["args"][-1] for each in containers] == verbs


async def test_the_setup_job_and_a_replica_run_with_what_the_chart_gives_them(
    nest: Nest, new_database: str, tmp_path: Path
) -> None:
    async with Receiver() as receiver:
        destinations = {"billing": BILLING | {"url": receiver.url()}}
        values: dict[str, Any] = {**DATABASE, "destinations": destinations, "web": {"port": _free_port()}}
        rendered = Helm4().render(values)
        content = CONTENT | {"relay-database": new_database}
        await lay_out(rendered, "Job relay-setup", tmp_path / "setup", content).run()

        pod = lay_out(rendered, "Deployment relay", tmp_path / "replica", content)
        [container] = pod.spec["containers"]
        log = tmp_path / "log"
        environment = pod.environment(container) | {"PYTHONPATH": str(ROOT)}
        replica = nest.start(pod.argv(container), log=log, env=environment)
        probes = [container[probe]["httpGet"]["path"] for probe in ("startupProbe", "readinessProbe", "livenessProbe")]
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{values['web']['port']}") as kubelet:
            for path in (*probes, "/metrics"):
                await _answers(kubelet, path, log)
        async with await psycopg.AsyncConnection.connect(new_database, autocommit=True) as shop:
            await shop.execute("INSERT INTO outbox.job (topic, payload) VALUES ('order.paid', '{}')")
        await receiver.wait_for(1)
        await lay_out(rendered, "Pod relay-check", tmp_path / "check", content).run()
        assert await asyncio.to_thread(nest.stop, replica, signal.SIGTERM, then=signal.SIGKILL) == 0, log.read_text()


async def _answers(kubelet: httpx.AsyncClient, path: str, log: Path) -> None:
    """Ask until the answer is 200, as a probe does."""
    try:
        async with asyncio.timeout(30):
            while True:
                try:
                    if (await kubelet.get(path)).status_code == httpx.codes.OK:
                        return
                except httpx.TransportError:
                    pass
                await asyncio.sleep(0.1)
    except TimeoutError:
        pytest.fail(f"{path}: {await asyncio.to_thread(log.read_text)}")
