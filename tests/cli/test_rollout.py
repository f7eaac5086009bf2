"""What the routing of events does while one configuration takes over from another."""

import asyncio
import json
from collections import Counter
from pathlib import Path

from tests.cli.conftest import CONFIGURATION, Connection, Relay, rows, until
from tests.receiver import Receiver
from tests.service.replica import Installation

EVENT = "INSERT INTO outbox.job (topic, entity_key, payload) VALUES ('order.paid', %s, '{}')"
LEFT = "SELECT destination, count(*) FROM outbox.job WHERE status <> 'done' GROUP BY 1 ORDER BY 1"


def configure(installation: Installation, receiver: Receiver, generation: int, *names: str) -> None:
    """Destinations that all want every event, each with a path of its own."""
    each = {name: {"url": receiver.url(f"/{name}"), "topics": ["*"]} for name in names}
    # A file of its own: a replica that runs reads its own one again when it changes.
    file = Path(installation.environment["RELAY_CONFIG"]).with_name(f"{'-'.join(names)}.yaml")
    installation.environment["RELAY_CONFIG"] = str(file)
    installation.configure(each, registry={"generation": generation})


async def publish(connection: Connection, count: int) -> None:
    """Events of as many entities."""
    for n in range(count):
        await connection.execute(EVENT, [f"order-{n}"])


async def test_replicas_of_two_configurations_each_deliver_what_they_know_and_nothing_is_lost(
    installation: Installation, receiver: Receiver, connection: Connection
) -> None:
    """The rename of `legacy` to `fresh`, as a rollout does it: both run, then the old name is retired."""
    configure(installation, receiver, 1, "shop", "legacy")
    assert (await installation.command("sync")).code == 0
    old = await installation.start("old")
    configure(installation, receiver, 2, "shop", "fresh")
    assert (await installation.command("sync")).code == 0
    new = await installation.start("new")
    assert old.process.poll() is None
    await publish(connection, 10)
    await receiver.wait_for(30)
    await until(lambda: empty(connection))
    assert Counter(arrival.path for arrival in receiver.arrivals) == {"/shop": 10, "/legacy": 10, "/fresh": 10}

    # Nobody delivers to the old name any more; what was routed to it before it is retired waits, and is listed.
    assert await old.stop() == 0
    await publish(connection, 2)
    await receiver.wait_for(34)
    assert (await installation.command("sync", "--retire", "legacy")).code == 0
    await publish(connection, 3)
    await receiver.wait_for(40)
    await until(lambda: waits(connection, [("legacy", 2)]))
    status = json.loads((await installation.command("status", "--json")).output)
    [listed] = [each for each in status["destinations"] if each["name"] == "legacy"]
    assert (listed["retired"], listed["due"]) == (True, 2)

    # A replica that has the old name delivers them, retired or not, and brings nothing back.
    assert await new.stop() == 0
    configure(installation, receiver, 1, "shop", "legacy")
    await installation.start("old")
    await receiver.wait_for(42)
    await until(lambda: empty(connection))
    assert [arrival.path for arrival in receiver.arrivals[40:]] == ["/legacy"] * 2
    await publish(connection, 1)
    assert await rows(connection, "SELECT destination FROM outbox.job ORDER BY id DESC LIMIT 2") == [
        ("shop",),
        ("fresh",),
    ]


async def empty(connection: Connection) -> bool:
    """Whether everything is delivered."""
    return await waits(connection, [])


async def waits(connection: Connection, left: list[tuple[str, int]]) -> bool:
    """Whether this is what is left, by destination."""
    return await rows(connection, LEFT) == left


def write(file: Path, destinations: str) -> None:
    """A configuration with these destinations."""
    file.write_text(f"destinations:\n{destinations}")


async def test_a_thousand_destinations_are_registered_at_once_and_changed_in_part(
    relay: Relay, connection: Connection, configured: Path
) -> None:
    webhook = "  d{n}: {{url: 'http://127.0.0.1:9/', topics: [only.{n}, every.one], signed: false}}\n"
    many = "".join(webhook.format(n=n) for n in range(1000))
    write(configured, many)
    assert len((await relay("sync", "--json")).json["registered"]) == 1000
    assert (await relay("sync", "--json")).json["registered"] == []
    write(configured, many.replace("only.77,", "other.77,").replace("  d5:", "  e5:"))
    synced = (await relay("sync", "--retire", "d5", "--json")).json
    assert synced == {"registered": ["d77", "e5"], "retired": ["d5"], "not_configured": []}
    await connection.execute("INSERT INTO outbox.job (topic, payload) VALUES ('other.77', '{}'), ('every.one', '{}')")
    found = await rows(connection, "SELECT topic, count(*), count(DISTINCT destination) FROM outbox.job GROUP BY 1")
    assert sorted(found) == [("every.one", 1000, 1000), ("other.77", 1, 1)]


async def test_two_syncs_at_once_leave_the_registry_as_one_of_them_wants_it(
    relay: Relay, connection: Connection, configured: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(
        CONFIGURATION.replace("[order.paid]", "[order.shipped]").replace("on_dead: skip", "on_dead: block")
    )
    await asyncio.gather(
        *(relay("sync", RELAY_CONFIG=str(file)) for file in (configured, other, configured, other)),
    )
    registry = await rows(connection, "SELECT topics, on_dead FROM outbox.destination ORDER BY name")
    assert registry in (
        [(["order.paid"], "block"), (["*"], "skip")],
        [(["order.shipped"], "block"), (["*"], "block")],
    )
