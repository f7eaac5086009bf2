"""`relay ping` sends what a real delivery would send, and says what came back."""

import asyncio
import json
import socket
from pathlib import Path

import pytest
from aiohttp import web
from standardwebhooks import Webhook

from tests.cli.conftest import SECRETS, Connection, Relay, configure, rows
from tests.receiver import Arrival, Receiver, status


def point_at(configured: Path, url: str) -> None:
    configure(configured, "http://127.0.0.1:9/hook?token=hunter2-url", url)


async def test_a_receiver_that_accepts_gets_one_signed_delivery_without_a_job(
    relay: Relay, configured: Path, connection: Connection
) -> None:
    async with Receiver() as receiver:
        point_at(configured, receiver.url("/hook?token=hunter2-url"))
        ran = await relay("ping", "billing")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("billing accepts: 204 after 0.")
    [arrival] = receiver.arrivals
    Webhook(SECRETS["SIGNING"]).verify(arrival.body, dict(arrival.headers))
    assert json.loads(arrival.body) == {"type": "relay.ping", "destination": "billing"}
    sent = [arrival.headers[name] for name in ("Relay-Topic", "Relay-Sequence", "Relay-Attempt", "Authorization")]
    assert sent == ["relay.ping", "0", "1", SECRETS["BEARER"]]
    assert arrival.key
    assert await rows(connection, "SELECT FROM outbox.job") == []


async def test_two_pings_have_two_keys(relay: Relay, configured: Path) -> None:
    async with Receiver() as receiver:
        point_at(configured, receiver.url())
        for _ in range(2):
            await relay("ping", "billing")
    assert len({arrival.key for arrival in receiver.arrivals}) == 2


@pytest.mark.parametrize("number", [301, 410, 500])
async def test_any_other_answer_is_exit_code_1_with_its_status(relay: Relay, configured: Path, number: int) -> None:
    async with Receiver(status(number, Location="http://elsewhere.test/x")) as receiver:
        point_at(configured, receiver.url())
        ran = await relay("ping", "billing", "--json")
    assert (ran.code, ran.err) == (1, "")
    pinged = ran.json
    assert pinged["duration_s"] > 0
    assert (pinged["destination"], pinged["delivered"], pinged["status"]) == ("billing", False, number)
    assert pinged["error_class"] == "status"
    assert pinged["detail"].startswith(str(number))
    assert len(receiver.arrivals) == 1


async def test_a_410_pauses_nothing(relay: Relay, configured: Path, connection: Connection) -> None:
    async with Receiver(status(410)) as receiver:
        point_at(configured, receiver.url())
        assert (await relay("ping", "billing")).code == 1
    assert await rows(connection, "SELECT FROM outbox.destination") == []


async def test_no_answer_is_exit_code_1_with_the_class_of_the_error(relay: Relay, configured: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        point_at(configured, f"http://127.0.0.1:{port}/hook?token=hunter2-url")
        ran = await relay("ping", "billing")
        pinged = (await relay("ping", "billing", "--json")).json
    assert ran.code == 1
    assert ran.out.startswith(f"billing does not accept: connect: cannot connect to 127.0.0.1:{port}")
    assert (pinged["status"], pinged["error_class"]) == (None, "connect")


async def test_a_receiver_that_never_answers_is_given_up_at_the_deadline(relay: Relay, configured: Path) -> None:
    async def never(_: Arrival) -> web.StreamResponse:
        await forever.wait()
        return web.Response()

    forever = asyncio.Event()
    async with Receiver(never) as receiver:
        configure(configured, more=f"  slow: {{url: '{receiver.url()}', signed: false, deadline_s: 0.3}}\n")
        pinged = (await relay("ping", "slow", "--json")).json
        forever.set()
    assert (pinged["delivered"], pinged["error_class"]) == (False, "deadline")


async def test_it_needs_no_database(anywhere: Relay, configured: Path) -> None:
    async with Receiver() as receiver:
        point_at(configured, receiver.url())
        ran = await anywhere(
            "--config",
            str(configured),
            "ping",
            "billing",
            RELAY_DATABASE_DSN="postgresql://nowhere.invalid/x",
            **SECRETS,
        )
    assert ran.code == 0


async def test_a_destination_that_is_not_configured_is_exit_code_2_with_the_nearest_name(relay: Relay) -> None:
    ran = await relay("ping", "biling")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "relay: there is no destination biling; did you mean billing?\n"
