"""`make image-test`: the image, built from the Dockerfile and run as a hardened platform would run it.

Not part of the core suite: it needs root, buildah, podman, runc and mmdebstrap, a folder for temporary files that takes
overlays, and a Python >= 3.11 outside /usr.
"""

import asyncio
import json
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from aiohttp import web

from relay import __version__
from tests.image.store import BASE, HARDENED, IMAGE, Store
from tests.receiver import Arrival, Receiver

pytestmark = pytest.mark.timeout(600)

GRACE_S = 35
SECRET = "whsec_" + "QUJD" * 8


@dataclass(frozen=True)
class Done:
    code: int
    output: str


@dataclass(frozen=True)
class Containers:
    """Containers of the image with one configuration."""

    store: Store
    options: tuple[str, ...] = ()

    def run(self, *arguments: str, options: tuple[str, ...] = ()) -> Done:
        """Run a container to its end."""
        argv = self.store.argv("run", "--rm", *HARDENED, *self.options, *options, IMAGE, *arguments)
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        return Done(done.returncode, done.stdout + done.stderr)

    def start(self) -> "Replica":
        """Start a replica."""
        name = self.store.podman("run", "--detach", *HARDENED, *self.options, IMAGE)
        return Replica(self.store, name)


@dataclass(frozen=True)
class Replica:
    """A container of `relay run`."""

    store: Store
    name: str

    def logs(self) -> list[dict[str, object]]:
        """The events so far."""
        argv = self.store.argv("logs", self.name)
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    async def logged(self, event: str) -> None:
        """Wait for an event."""
        async with asyncio.timeout(60):
            while not any(each["event"] == event for each in await asyncio.to_thread(self.logs)):
                await asyncio.sleep(0.1)

    def namespace(self) -> str:
        """The process namespace of the container, which no other process shares."""
        pid = self.store.inspect("container", self.name)["State"]["Pid"]
        return str(Path(f"/proc/{pid}/ns/pid").readlink())

    def exec(self, *argv: str) -> int:
        """Run a program beside the replica; its exit code."""
        return subprocess.run(self.store.argv("exec", self.name, *argv), capture_output=True, check=False).returncode

    def ended(self) -> int:
        """Wait for the end, and return the exit code."""
        return int(self.store.podman("wait", self.name))


def processes_in(namespace: str) -> list[str]:
    """The processes of this machine that live in a process namespace."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str((process / "ns/pid").readlink()) == namespace:
                found.append(process.name)
        except OSError:
            continue
    return found


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver() as receiver:
        yield receiver


@pytest.fixture
def containers(store: Store, receiver: Receiver, new_database: str, tmp_path: Path) -> Iterator[Containers]:
    """Containers with a destination, its secret and a database that is empty."""
    (tmp_path / "secret").write_text(SECRET + "\n")
    destination = {"url": receiver.url(), "topics": ["order.*"], "secrets": [{"file": "/run/secrets/relay/secret"}]}
    settings = {
        "database": {"dsn": new_database},
        "replica": {"drain_s": 25, "termination_grace_s": GRACE_S},
        "destinations": {"billing": destination},
    }
    (tmp_path / "relay.yaml").write_text(json.dumps(settings))
    tmp_path.chmod(0o755)
    volumes = (f"{tmp_path}:/etc/relay:ro", f"{tmp_path}:/run/secrets/relay:ro")
    yield Containers(store, tuple(part for volume in volumes for part in ("--volume", volume)))
    store.podman("rm", "--all", "--force", "--time=0")


async def insert(dsn: str) -> None:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute("INSERT INTO outbox.job (topic, payload) VALUES ('order.paid', '{\"order\": 42}')")


async def statuses(dsn: str) -> list[str]:
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        return [row[0] for row in await (await connection.execute("SELECT status FROM outbox.job")).fetchall()]


def test_the_image_is_small_and_says_what_it_is(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    image, base = store.inspect("image", IMAGE), store.inspect("image", BASE)
    with capsys.disabled():
        own = image["Size"] - base["Size"]
        print(f"\nimage {image['Size'] / 1e6:.0f} MB, of which {own / 1e6:.0f} MB above its base")  # noqa: T201
    assert own < 80e6
    labels = {name.removeprefix("org.opencontainers.image."): text for name, text in image["Labels"].items()}
    assert labels["version"] == __version__
    assert {"title", "description", "licenses", "revision", "created"} <= labels.keys()
    assert image["Config"]["StopSignal"] in {"SIGTERM", "15"}


def test_relay_runs_without_root_on_a_file_system_that_nobody_can_write(store: Store) -> None:
    probe = "import os; print(os.getuid()); open('/tmp/x', 'w')"
    done = Containers(store).run("-c", probe, options=("--entrypoint", "python"))
    assert done.output.startswith("65532\n")
    assert "Read-only file system" in done.output
    assert Containers(store).run("--version") == Done(0, f"relay, version {__version__}\n")


def test_nothing_in_the_image_builds_or_installs_python_packages(store: Store) -> None:
    names = "['pip', 'pip3', 'gcc', 'cc', 'make', 'ld', 'hatchling', 'uv']"
    modules = "['pip', 'ensurepip', 'setuptools', 'hatchling', 'wheel']"
    probe = (
        "import shutil, importlib.util as u; "
        f"print([n for n in {names} if shutil.which(n)], [m for m in {modules} if u.find_spec(m)])"
    )
    assert Containers(store).run("-c", probe, options=("--entrypoint", "python")) == Done(0, "[] []\n")


async def test_migrate_sync_check_run_deliver_and_stop(
    containers: Containers, receiver: Receiver, new_database: str
) -> None:
    assert (await asyncio.to_thread(containers.run, "check")).code == 1
    for verb in ("migrate", "sync", "check"):
        done = await asyncio.to_thread(containers.run, verb)
        assert done.code == 0, done.output
    replica = containers.start()
    await replica.logged("replica_started")
    await insert(new_database)
    [arrival] = await receiver.wait_for(1)
    assert arrival.body == b'{"order": 42}'

    [_, *command] = containers.store.inspect("image", IMAGE)["Healthcheck"]["Test"]
    assert await asyncio.to_thread(replica.exec, *command) == 0
    namespace = replica.namespace()
    await asyncio.to_thread(containers.store.podman, "stop", f"--time={GRACE_S}", replica.name)
    assert replica.ended() == 0
    assert processes_in(namespace) == []
    assert await statuses(new_database) == ["done"]


async def test_a_replica_that_is_told_to_stop_finishes_what_is_in_flight(
    containers: Containers, receiver: Receiver, new_database: str
) -> None:
    answer = asyncio.Event()

    async def slowly(_arrival: Arrival) -> web.StreamResponse:
        await answer.wait()
        return web.Response(status=204)

    receiver.answer = slowly
    for verb in ("migrate", "sync"):
        assert (await asyncio.to_thread(containers.run, verb)).code == 0
    replica = containers.start()
    await insert(new_database)
    await receiver.wait_arrived(1)
    containers.store.podman("kill", f"--signal={signal.SIGTERM.name}", replica.name)
    await replica.logged("stopping")
    answer.set()
    assert await asyncio.to_thread(replica.ended) == 0
    assert await statuses(new_database) == ["done"]
    assert [each for each in replica.logs() if each["level"] in {"warning", "error"}] == []


async def test_the_health_check_fails_where_no_replica_answers(store: Store) -> None:
    [_, program, *arguments] = store.inspect("image", IMAGE)["Healthcheck"]["Test"]
    done = await asyncio.to_thread(
        Containers(store).run, *arguments, options=("--entrypoint", program, "--env", "RELAY_WEB_PORT=1")
    )
    assert done.code != 0
