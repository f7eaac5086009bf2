"""A replica beside a destination that is configured wrongly: it does not start, or it starts without."""

import json

from tests.conftest import Connection
from tests.receiver import Receiver
from tests.service.replica import Installation
from tests.service.table import rows, until

WRONG = {"headers": {"Host": "other.example"}}
REGISTERED = "SELECT name, topics, retired_at IS NULL FROM outbox.destination ORDER BY name"


async def test_a_destination_with_a_wrong_header_keeps_the_replica_from_starting(
    installation: Installation, receiver: Receiver
) -> None:
    installation.configure({"good": {"url": receiver.url()}, "bad": {"url": receiver.url(), **WRONG}})
    done = await installation.command("run")
    assert done.code == 2
    assert "destinations.bad.headers.Host: header 'Host' is set by the relay and cannot be replaced" in done.error


async def test_where_it_was_asked_for_the_others_are_delivered_and_the_jobs_of_the_wrong_one_wait(
    installation: Installation, connection: Connection, receiver: Receiver
) -> None:
    right = {"url": receiver.url(), "topics": ["t"]}
    installation.configure({"good": right, "bad": {**right, "key_suffix": "b"}})
    assert (await installation.command("sync")).code == 0
    before = await rows(connection, REGISTERED)
    await connection.execute("INSERT INTO outbox.job (topic, payload) VALUES ('t', '{}')")

    skip = {"skip_broken_destinations": True}
    installation.configure({"good": right, "bad": {**right, "key_suffix": "b", **WRONG}}, replica=skip)
    checked = await installation.command("check", "--json")
    found = [json.loads(line) for line in checked.output.splitlines()]
    assert checked.code == 0
    [warning] = [each for each in found if each["level"] == "warning" and "bad" in each["sentence"]]
    assert "destinations.bad.headers.Host" in warning["sentence"]
    assert warning["sentence"].endswith("replicas skip this destination, its jobs wait")

    replica = await installation.start()
    [skipped] = replica.logged("destination_skipped")
    assert (skipped["level"], skipped["destination"]) == ("error", "bad")
    assert "destinations.bad.headers.Host" in skipped["why"]
    assert replica.logged("destination_not_configured") == []
    await until(connection, "SELECT status = 'done' FROM outbox.job WHERE destination = 'good'")
    untouched = "SELECT status, attempts, claims FROM outbox.job WHERE destination = 'bad'"
    assert await rows(connection, untouched) == [("pending", 0, 0)]
    assert (await installation.command("sync")).code == 0
    assert await rows(connection, REGISTERED) == before
