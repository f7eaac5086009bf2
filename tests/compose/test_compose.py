"""docker-compose.yml: read by the real Compose, and its commands run as processes, in its order."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from relay.demo.nest import Nest

ROOT = Path(__file__).parents[2]
Service = dict[str, Any]

# What the image starts where a service does not say.
ENTRYPOINT = ["relay"]
ENDED = "service_completed_successfully"


def compose(*arguments: str) -> str:
    """What Compose said; fails with its error."""
    argv = [f"{Path(sys.executable).parent}/docker-compose", "--file", f"{ROOT}/docker-compose.yml", *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    """The project as Compose understands it, with every profile."""
    return dict(json.loads(compose("--profile", "*", "config", "--format", "json")))


def ours(project: dict[str, Any]) -> dict[str, Service]:
    """The services that run the relay's image, each after those that it depends on."""
    left = {name: each for name, each in project["services"].items() if "build" in each}
    ordered: dict[str, Service] = {}
    while left:
        ready = [name for name, each in left.items() if not left.keys() & each.get("depends_on", {}).keys()]
        ordered |= {name: left.pop(name) for name in sorted(ready, key=lambda name: name == "producer")}
    return ordered


@dataclass(frozen=True)
class Host:
    """This machine in place of the containers' network: their names, ports and files become its own."""

    folder: Path
    replaced: dict[str, str]

    def mapped(self, text: str) -> str:
        """The text with every name of the network replaced."""
        for name, place in self.replaced.items():
            text = text.replace(name, place)
        return text

    def lay_out(self, project: dict[str, Any], service: Service) -> None:
        """Write the service's configs to where its commands find them."""
        for mount in service.get("configs", []):
            content = Path(project["configs"][mount["source"]]["file"]).read_text()
            (self.folder / Path(mount["target"]).name).write_text(self.mapped(content))

    def argv(self, service: Service) -> list[str]:
        """The command line of the service."""
        program, *arguments = (service["entrypoint"] or ENTRYPOINT) + (service["command"] or [])
        start = {"relay": ["-m", "relay"], "python": []}[program]
        return [sys.executable, *start, *map(self.mapped, arguments)]

    def environment(self, service: Service) -> dict[str, str]:
        """Its variables."""
        own = {name: self.mapped(text) for name, text in service["environment"].items()}
        inherited = {name: text for name, text in os.environ.items() if not name.startswith("RELAY_")}
        return {**inherited, "PYTHONPATH": str(ROOT), "RELAY_WEB_PORT": str(_free_port()), **own}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize("profile", [(), ("--profile", "monitoring")])
def test_compose_takes_the_file(profile: tuple[str, ...]) -> None:
    assert compose(*profile, "config", "--quiet") == ""


def test_without_a_profile_there_is_nothing_but_the_relay_and_what_it_works_with() -> None:
    assert set(compose("config", "--services").split()) == {
        *("postgres", "migrate", "sync", "relay", "receiver", "producer")
    }


def test_a_service_waits_for_what_it_needs(project: dict[str, Any]) -> None:
    waits = {
        name: {other: how["condition"] for other, how in each.get("depends_on", {}).items()}
        for name, each in ours(project).items()
    }
    assert waits["migrate"] == {"postgres": "service_healthy"}
    assert waits["sync"] == {"migrate": ENDED}
    assert waits["relay"] == waits["producer"] == {"sync": ENDED}


def test_every_service_of_the_image_is_locked_up(project: dict[str, Any]) -> None:
    for service in ours(project).values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        # Compose cannot copy a config's text into a container that nobody can write to.
        assert all("file" in project["configs"][each["source"]] for each in service["configs"])


def test_every_image_has_a_version_and_every_file_is_there(project: dict[str, Any]) -> None:
    for name, service in project["services"].items():
        assert not service["image"].endswith(":latest"), name
        assert ":" in service["image"], name
        for volume in service.get("volumes", []):
            assert any(Path(volume["source"]).iterdir()), f"{name} mounts {volume['source']}"


@pytest.fixture
def host(tmp_path: Path, new_database: str) -> Host:
    port = _free_port()
    return Host(
        tmp_path,
        {
            "postgresql://postgres:relay@postgres:5432/shop": new_database,
            "receiver:8000": f"127.0.0.1:{port}",
            "8000": str(port),
            "0.0.0.0": "127.0.0.1",
            "/etc/relay": str(tmp_path),
        },
    )


async def test_the_services_as_processes_deliver_and_stop(project: dict[str, Any], host: Host, nest: Nest) -> None:
    services = ours(project)
    ends = {
        name
        for name in services
        if any(each.get("depends_on", {}).get(name, {}).get("condition") == ENDED for each in services.values())
    }
    running = {}
    for name, service in services.items():
        host.lay_out(project, service)
        for replica in range(service.get("deploy", {}).get("replicas", 1)):
            log = host.folder / f"{name}-{replica}.log"
            running[log] = nest.start(host.argv(service), log=log, env=host.environment(service))
            if name in ends:
                code = await asyncio.to_thread(running[log].wait, 60)
                nest.forget(running.pop(log))
                assert code == 0, log.read_text()
    logs = {log.stem: log for log in running}
    assert set(logs) == {"receiver-0", "relay-0", "relay-1", "producer-0"}
    for name, text, count in (
        ("relay-0", "replica_started", 1),
        ("relay-1", "replica_started", 1),
        ("receiver-0", "order.paid", 3),
    ):
        async with asyncio.timeout(60):
            while logs[name].read_text().count(text) < count:
                assert all(process.poll() is None for process in running.values()), logs[name].read_text()
                await asyncio.sleep(0.1)
    for log, process in running.items():
        code = await asyncio.to_thread(nest.stop, process, signal.SIGTERM, then=signal.SIGKILL)
        assert code == (0 if log.stem.startswith("relay") else -signal.SIGTERM), log.read_text()
