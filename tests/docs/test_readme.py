"""The README's example, played: its configuration, its INSERT, its request."""

import asyncio
import os
import re
import sys
from pathlib import Path

from standardwebhooks import Webhook

from relay.admin import Admin
from relay.config import load
from relay.database import Database
from relay.model import Destination
from relay.rows import Range
from relay.store import Store
from tests.conftest import Connection
from tests.docs.pages import ROOT, blocks, text
from tests.docs.wire import deliver

SECRET = "whsec_" + "QUJD" * 8


def _destination(tmp_path: Path) -> Destination:
    found = re.search(r"<<'YAML'\n(.*?)^YAML$", text("README.md"), re.DOTALL | re.MULTILINE)
    assert found is not None
    file = tmp_path / "relay.yaml"
    file.write_text(found[1])
    environ = {"RELAY_DATABASE_DSN": "postgresql://relay:secret@db.example/app", "BILLING_SECRET": SECRET}
    [destination] = load(file, environ).resolved_destinations()
    return destination


def test_the_configuration_of_the_readme_loads(tmp_path: Path) -> None:
    destination = _destination(tmp_path)
    assert (destination.name, destination.url) == ("billing", "https://billing.example/hooks/outbox")


def test_the_example_configuration_loads() -> None:
    environ = {"RELAY_DATABASE_DSN": "postgresql://localhost/app", "BILLING_WEBHOOK_SECRET": SECRET}
    assert load(ROOT / "relay.example.yaml", environ).destinations.keys() == {"billing", "search"}


async def test_the_insert_of_the_readme_arrives_as_the_request_of_the_readme(
    tmp_path: Path, database: str, connection: Connection
) -> None:
    destination = _destination(tmp_path)
    [insert], [request] = blocks("README.md", "sql"), blocks("README.md", "http")
    async with Database(database, name="readme") as pool:
        await Admin(pool).sync([destination], generation=0, retire=[])
        await connection.execute("CREATE TEMP TABLE orders (id bigint, status text)")
        for statement in insert.split(";\n"):
            if statement.strip():
                await connection.execute(statement.encode())
        store = Store(pool, locked_by="readme-00000000", lease_s=60)
        claimed = await store.claim([Range("billing", 1, free=5, width=5)], payload_bytes=1 << 20)
    [job] = claimed.jobs
    arrived = await deliver(job, destination)

    head, _, body = request.removesuffix("\n").partition("\n\n")
    line, *rest = head.splitlines()
    shown = [(name, value) for name, _, value in (each.partition(": ") for each in rest)]
    assert arrived.line == line
    assert arrived.body == body.encode()
    assert [name for name, _ in arrived.headers] == [name for name, _ in shown]
    fresh = {"Host", "Idempotency-Key", "webhook-id", "webhook-timestamp", "webhook-signature"}
    assert [each for each in arrived.headers if each[0] not in fresh] == [
        each for each in shown if each[0] not in fresh
    ]
    assert dict(shown)["Host"] in destination.url
    assert dict(shown)["webhook-id"] == dict(shown)["Idempotency-Key"]
    assert arrived.lower["webhook-id"] == arrived.lower["idempotency-key"] == job.idempotency_key
    Webhook(SECRET).verify(arrived.body, dict(arrived.headers))


async def test_the_commands_of_the_readme_work_one_after_the_other(tmp_path: Path, new_database: str) -> None:
    [console] = re.findall(r"^## Run it\n\n```console\n(.*?)^```$", text("README.md"), re.DOTALL | re.MULTILINE)
    # `make package-test` installs the wheel; the database is this test's own, and a replica runs until it is told.
    typed = re.sub(r"^\$ pip install .*\n", "", console, flags=re.MULTILINE).replace(
        "postgresql://relay:…@db.example/app", new_database
    )
    script = re.sub(r"^\$ ", "", typed, flags=re.MULTILINE).replace("$ relay", "relay")
    script = re.sub(
        r"^relay run\b.*$", "relay run 2> log & until grep -q replica_started log; do :; done", script, flags=re.M
    )
    shell = await asyncio.create_subprocess_exec(
        "bash", "-euc", f"{script}\nkill $!; wait $!", cwd=tmp_path,
        env={"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    printed, _ = await shell.communicate()
    assert shell.returncode == 0, printed.decode()
    assert "applied 0001_job" in printed.decode()
    assert "billing" in printed.decode()
