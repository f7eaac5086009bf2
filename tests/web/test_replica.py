"""The dashboard inside a replica that delivers."""

import socket
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from relay.demo.nest import Nest
from tests.conftest import Connection
from tests.receiver import Receiver
from tests.service.replica import Installation
from tests.service.table import until
from tests.web.site import TOKENS


@pytest.fixture
async def installation(nest: Nest, tmp_path: Path, database: str) -> AsyncIterator[Installation]:
    """A configuration and the processes started with it."""
    installation = Installation(nest, tmp_path, database)
    yield installation
    await installation.close()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


async def test_a_replica_shows_what_it_does(installation: Installation, connection: Connection) -> None:
    port = free_port()
    installation.environment |= {"ADMIN": TOKENS["admin"], "VIEWER": TOKENS["viewer"]}
    async with Receiver() as receiver:
        installation.configure(
            {"billing": {"url": receiver.url()}, "closed": {"url": "http://127.0.0.1:9/"}},
            web={"port": port, "admin_token": {"env": "ADMIN"}, "viewer_token": {"env": "VIEWER"}},
        )
        assert (await installation.command("sync")).code == 0
        await connection.execute(
            "INSERT INTO outbox.job (destination, topic, payload)"
            " SELECT name, 'a', '{}' FROM unnest('{billing,closed}'::text[]) name, generate_series(1, 20)"
        )
        replica = await installation.start()
        started = await replica.event("replica_started")
        await until(connection, "SELECT count(*) = 20 FROM outbox.job WHERE status = 'done'")
        await until(connection, "SELECT count(*) >= 10 FROM outbox.attempt")
        headers = {"Authorization": f"Bearer {TOKENS['viewer']}"}
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}/admin/api/v1", headers=headers) as program:
            status = (await program.get("/status")).json()
            minutes = (await program.get("/traffic?destination=billing")).json()["minutes"]
    views = {each["status"]["name"]: each for each in status["destinations"]}
    assert status["here"] == started["replica"]
    assert views["billing"]["breaker"] == "closed"
    assert views["billing"]["success_ratio"] == 1.0
    assert views["closed"]["breaker"] in {"open", "half_open"}
    assert views["closed"]["success_ratio"] == 0.0
    assert sum(each["delivered"] for each in minutes) == 20
    assert await replica.stop() == 0


async def test_without_a_token_there_is_no_dashboard(installation: Installation) -> None:
    port = free_port()
    installation.configure({}, web={"port": port})
    replica = await installation.start()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as anybody:
        for path in ("/admin/", "/admin/login", "/admin/api/v1/status", "/admin/static/app.css"):
            assert (await anybody.get(path)).status_code == 404
    assert await replica.stop() == 0
