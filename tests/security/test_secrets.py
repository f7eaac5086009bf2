"""Everything that a relay says, to anybody, in a run with secrets in every place that takes one.

What a replica logs of URLs, payloads and a receiver's words is in tests/traces/test_secrets.py; what configuration
refuses, and what a repr shows, in tests/config/test_secrets.py.
"""

import asyncio
import json

import httpx
from aiohttp import web
from psycopg.conninfo import make_conninfo

from tests.conftest import Connection
from tests.receiver import Arrival, Receiver
from tests.schema.rows import column
from tests.service.replica import Installation
from tests.service.table import until
from tests.web.site import form_token, log_in
from tests.web.test_replica import free_port

SECRETS = {
    "SIGNING": "whsec_" + "c2lnbmluZy1z" * 3,
    "HEADER": "Bearer token-of-a-header-0123456789",
    "PROXY": "http://user:password-of-the-proxy@127.0.0.1:1",
    "ADMIN": "token-of-an-admin-0123456789",
    "VIEWER": "token-of-a-viewer-0123456789",
}
PASSWORDS = {"dsn": "password-of-the-database", "listen_dsn": "password-of-the-listener"}
COLLECTOR = "token-of-the-collector"
# What stands in each of them, also by itself.
NEVER = [
    *(text.split()[-1].removeprefix("whsec_") for name, text in SECRETS.items() if name != "PROXY"),
    "password-of-the-proxy", *PASSWORDS.values(), COLLECTOR,
]  # fmt: skip
INSERT = """
INSERT INTO outbox.job (destination, topic, payload)
SELECT name, 't', '{}' FROM unnest(%s::text[]) name
"""
# No producer can insert it: the header has a line break, which the relay finds out when it builds the request.
CRASHES = """
INSERT INTO outbox.job (destination, topic, payload, headers, claims)
VALUES ('echo', 't', '{}', '{"X-A": "a\\nb"}', 1)
"""
VERBS = (
    ("check",), ("status", "--json"), ("dead", "list", "--json"), ("operations",), ("ping", "echo"),
    ("ping", "tunnel", "--json"),
)  # fmt: skip
PAGES = ("/metrics", "/admin/", "/admin/dead", "/admin/operations", "/admin/destinations/echo")
API = ("status", "traffic", "dead", "operations")


async def repeat(arrival: Arrival) -> web.StreamResponse:
    """Says back every header it got, as some receivers do to help."""
    return web.json_response(dict(arrival.headers), status=500)


def configure(installation: Installation, receiver: Receiver, port: int) -> list[str]:
    """Writes the file and the environment; the destinations' names."""
    installation.environment |= {
        **SECRETS,
        "RELAY_LOG_LEVEL": "debug",
        "RELAY_DATABASE_DSN": make_conninfo(installation.dsn, password=PASSWORDS["dsn"]),
        "RELAY_DATABASE_LISTEN_DSN": make_conninfo(installation.dsn, password=PASSWORDS["listen_dsn"]),
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1",
        "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer {COLLECTOR}",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
        "OTEL_BSP_SCHEDULE_DELAY": "50",
    }
    usual = {
        "secrets": [{"env": "SIGNING"}],
        "headers": {"Authorization": {"env": "HEADER"}},
        "retry": {"max_attempts": 1},
    }
    destinations: dict[str, dict[str, object]] = {
        "echo": {"url": receiver.url()},
        "plain": {"url": receiver.url().replace("http:", "https:")},
        "proxied": {"url": "http://shop.invalid/", "proxy": {"env": "PROXY"}, "insecure_http": True},
        "tunnel": {"url": "https://shop.invalid/", "proxy": {"env": "PROXY"}},
    }
    installation.configure(
        {name: {**usual, **each} for name, each in destinations.items()},
        web={"port": port, "admin_token": {"env": "ADMIN"}, "viewer_token": {"env": "VIEWER"}},
    )
    return list(destinations)


async def read(origin: str, jobs: list[int]) -> list[str]:
    """What the web says to an administrator, and to nobody."""
    said = []
    token = {"Authorization": f"Bearer {SECRETS['ADMIN']}"}
    async with httpx.AsyncClient(base_url=origin, headers={"Origin": origin}) as browser:
        said.append((await browser.post("/admin/login", data={"token": SECRETS["ADMIN"]})).text)
        assert (await log_in(browser, SECRETS["ADMIN"])).status_code == 303
        assert form_token(await browser.get("/admin/"))
        for page in (*PAGES, *(f"/admin/jobs/{job}" for job in jobs)):
            answer = await browser.get(page)
            assert answer.status_code == 200, page
            said.append(answer.text + str(answer.headers))
        for path in (*API, *(f"jobs/{job}" for job in jobs)):
            answer = await browser.get(f"/admin/api/v1/{path}", headers=token)
            assert answer.status_code == 200, path
            said.append(answer.text)
    return said


async def test_nothing_that_a_relay_says_to_anybody_has_a_secret_in_it(
    installation: Installation, receiver: Receiver, connection: Connection
) -> None:
    receiver.answer = repeat
    port = free_port()
    names = configure(installation, receiver, port)
    assert (await installation.command("sync")).code == 0
    await connection.execute(INSERT, [names])
    await connection.execute(CRASHES)
    replica = await installation.start()
    await until(connection, "SELECT count(*) = 0 FROM outbox.job WHERE status <> 'dead'")
    jobs = await column(connection, "SELECT id FROM outbox.job ORDER BY id")
    said = await read(f"http://127.0.0.1:{port}", jobs)
    shown = (("job", "show", str(jobs[0])), ("job", "show", str(jobs[-1]), "--json"))
    for done in await asyncio.gather(*(installation.command(*verb) for verb in (*VERBS, *shown))):
        said.append(done.output + done.error)
    await replica.event("traces_not_exported")
    assert await replica.stop() == 0
    assert replica.logged("attempt_crashed")
    said += [json.dumps(each, ensure_ascii=False) for each in replica.events]
    installation.replicas.clear()  # it logged a bug, as it should

    found = "\n".join(said)
    for seen in (
        "Connection refused",
        "X-A",
        "500 Internal Server Error",
        "ValueError",
        "cannot connect to 127.0.0.1:1",
    ):
        assert seen in found
    assert [secret for secret in NEVER if secret in found] == []
    kept = await column(connection, "SELECT convert_from(response, 'UTF8') || detail FROM outbox.attempt")
    assert any("Idempotency-Key" in text for text in kept)
    assert [secret for secret in NEVER if any(secret in text for text in kept)] == []
