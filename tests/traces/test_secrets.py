"""Everything that a replica prints, in a run with secrets everywhere and receivers that do their worst."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from psycopg.conninfo import make_conninfo

from tests.conftest import Connection
from tests.receiver import Arrival, Receiver
from tests.service.replica import SECRET, Installation

# None of these may be printed. A secret of a URL stands where receivers have it: in the path, too.
SECRETS = {
    "signing": SECRET.removeprefix("whsec_"),
    "header": "token-of-a-header",
    "path": "token-in-a-path",
    "query": "token-in-a-query",
    "password": "password-of-the-database",
    "payload": "payload-4111111111111111",
    "row_header": "token-of-a-row",
    "entity": "customer-of-a-lane",
    "location": "token-in-a-location",
    "reason": "words-of-a-receiver",
    "collector": "token-of-the-collector",
    "endpoint": "token-of-an-endpoint",
}
INSERT = (
    "INSERT INTO outbox.job (destination, topic, entity_key, payload, headers)"
    " SELECT d, 't', %(entity)s, json_build_object('card', %(payload)s::text),"
    "        jsonb_build_object('X-Row', %(row_header)s::text)"
    "   FROM unnest(%(destinations)s::text[]) d"
)
# A destination that is gone is paused, and its job waits.
UNFINISHED = (
    "SELECT count(*) FROM outbox.job j JOIN outbox.destination d ON d.name = j.destination"
    " WHERE CASE d.name WHEN 'gone' THEN d.paused_at IS NULL ELSE j.status <> 'dead' END"
)


async def worst(arrival: Arrival) -> web.StreamResponse:
    """Says back what it got, or leads elsewhere."""
    match arrival.path.split("/")[1]:
        case "moved":
            location = (
                f"https://user:{SECRETS['location']}@elsewhere.example/{SECRETS['location']}?{SECRETS['location']}"
            )
            return web.Response(status=302, headers={"Location": location})
        case "gone":
            return web.Response(status=410, reason=SECRETS["reason"], body=arrival.body)
        case _:
            headers = {f"X-{name}": value for name, value in arrival.headers.items()}
            return web.Response(status=500, reason=SECRETS["reason"], headers=headers, body=arrival.body)


@asynccontextmanager
async def parrot() -> AsyncIterator[int]:
    """The port of something that is no HTTP server: it sends every byte back."""

    async def repeat(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read(65536))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(repeat, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_a_replica_prints_neither_secrets_nor_payloads(
    untraced: Installation, receiver: Receiver, connection: Connection
) -> None:
    receiver.answer = worst
    end = f"{SECRETS['path']}?token={SECRETS['query']}"
    async with parrot() as parrot_port:
        urls = {
            "echo": receiver.url(f"/echo/{end}"),
            "moved": receiver.url(f"/moved/{end}"),
            "gone": receiver.url(f"/gone/{end}"),
            "refused": f"http://127.0.0.1:1/{end}",
            "plain": receiver.url(f"/{end}").replace("http:", "https:"),
            "nowhere": f"https://nowhere.invalid/{end}",
            "parrot": f"http://127.0.0.1:{parrot_port}/{end}",
        }
        destination = {"headers": {"Authorization": {"env": "TOKEN"}}, "retry": {"max_attempts": 2, "base_s": 0.01}}
        untraced.configure({name: {"url": url, **destination} for name, url in urls.items()})
        untraced.environment |= {
            "TOKEN": f"Bearer {SECRETS['header']}",
            "RELAY_LOG_LEVEL": "debug",
            "RELAY_DATABASE_DSN": make_conninfo(untraced.dsn, password=SECRETS["password"]),
            # Nobody listens there, which the log says with a reason.
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"http://user:{SECRETS['endpoint']}@127.0.0.1:1/v1?{SECRETS['endpoint']}",
            "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer {SECRETS['collector']}",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "3",
            "OTEL_BSP_SCHEDULE_DELAY": "50",
        }
        await connection.execute(INSERT, {**SECRETS, "destinations": list(urls)})
        assert (await untraced.command("sync")).code == 0
        replica = await untraced.start()
        while await (await connection.execute(UNFINISHED)).fetchone() != (0,):
            await connection.execute("SELECT pg_sleep(0.05)")
        await replica.event("traces_not_exported")
        assert await replica.stop() == 0

    printed = "\n".join(json.dumps(each, ensure_ascii=False) for each in replica.events)
    for name in ("destination_paused", "job_dead", "traces_not_exported", "Connection refused", "replica_stopped"):
        assert name in printed
    assert [secret for secret in SECRETS.values() if secret in printed] == []


async def test_verbs_print_no_secrets_of_a_destination(untraced: Installation, receiver: Receiver) -> None:
    receiver.answer = worst
    end = f"{SECRETS['path']}?token={SECRETS['query']}"
    headers = {"Authorization": {"env": "TOKEN"}}
    untraced.configure({"echo": {"url": receiver.url(f"/echo/{end}"), "headers": headers}})
    untraced.environment |= {"TOKEN": f"Bearer {SECRETS['header']}"}
    for verb in (("check",), ("ping", "echo")):
        done = await untraced.command(*verb)
        assert [secret for secret in SECRETS.values() if secret in done.output + done.error] == [], verb
