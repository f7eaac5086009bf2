"""A configuration that changes while replicas run: taken over as a whole, or not at all."""

import asyncio
import os
import signal
from collections import defaultdict
from itertools import cycle
from pathlib import Path

import httpx
from aiohttp import web
from standardwebhooks import Webhook, WebhookVerificationError

from tests.conftest import Connection
from tests.metrics.scrape import free_port
from tests.receiver import Arrival, Receiver, accept, status
from tests.sender.receiver import keep_answering, receiving
from tests.sender.test_tls import Authority
from tests.service.replica import SECRET, Installation, Replica
from tests.service.table import counts, rows, until, value

ROTATED = "whsec_" + "REVG" * 8
JOBS, ENTITIES = 600, 30
INSERT = (
    "INSERT INTO outbox.job (topic, destination, entity_key, payload)"
    " SELECT 't', %s, 'entity-' || n %% %s, '{}' FROM generate_series(1, %s) n"
)
ONE = "INSERT INTO outbox.job (topic, destination, payload) VALUES ('t', 'shop', '{}')"


def verifies(arrival: Arrival, secret: str) -> bool:
    """Whether it was signed with this secret."""
    try:
        Webhook(secret).verify(arrival.body, {name.lower(): text for name, text in arrival.headers.items()})
    except WebhookVerificationError:
        return False
    return True


async def reloaded(replica: Replica, *changed: str) -> None:
    """SIGHUP, and wait until just these keys were taken over."""
    replica.signal(signal.SIGHUP)
    await replica.event("configuration_read", changed=sorted(changed))


async def test_a_rotated_secret_signs_the_next_delivery_without_a_signal(
    installation: Installation, connection: Connection, receiver: Receiver, tmp_path: Path
) -> None:
    file = tmp_path / "secret"
    file.write_text(SECRET)
    installation.configure({"shop": {"url": receiver.url(), "secrets": [{"file": str(file)}]}})
    replica = await installation.start()
    await connection.execute(ONE)
    [before] = await receiver.wait_for(1)
    file.write_text(ROTATED)
    await replica.event("configuration_read", changed=["destinations.shop.secrets"])
    await connection.execute(ONE)
    [_, after] = await receiver.wait_for(2)
    assert [verifies(before, SECRET), verifies(before, ROTATED)] == [True, False]
    assert [verifies(after, SECRET), verifies(after, ROTATED)] == [False, True]
    assert "REVG" not in repr(replica.events)


async def test_a_configmap_whose_symlink_is_swapped_is_read_again(
    installation: Installation, connection: Connection, receiver: Receiver, tmp_path: Path
) -> None:
    mounted = tmp_path / "mounted"
    for number, path in enumerate(("/old", "/new")):
        (mounted / f"..{number}").mkdir(parents=True)
        installation.configure({"shop": {"url": receiver.url(path)}})
        (tmp_path / "relay.yaml").rename(mounted / f"..{number}" / "relay.yaml")
    (mounted / "..data").symlink_to("..0")
    (mounted / "relay.yaml").symlink_to("..data/relay.yaml")
    installation.environment["RELAY_CONFIG"] = str(mounted / "relay.yaml")
    replica = await installation.start()
    await connection.execute(ONE)
    await receiver.wait_for(1)
    (mounted / "..data_tmp").symlink_to("..1")
    os.replace(mounted / "..data_tmp", mounted / "..data")  # noqa: PTH105 - as a kubelet does
    await replica.event("configuration_read", changed=["destinations.shop.url"])
    await connection.execute(ONE)
    assert [arrival.path for arrival in await receiver.wait_for(2)] == ["/old", "/new"]


async def test_a_replaced_authority_is_trusted_by_the_next_attempt(
    installation: Installation, connection: Connection, tmp_path: Path
) -> None:
    old, new = (Authority(tmp_path / name) for name in ("old", "new"))
    file = tmp_path / "ca.pem"
    old.ca.cert_pem.write_to_path(str(file))
    async with receiving(keep_answering, tls=new.server("localhost")) as receiver:
        shop = {"url": f"https://localhost:{receiver.port}/", "tls": {"ca_file": str(file)}}
        installation.configure({"shop": shop})
        replica = await installation.start()
        await connection.execute(ONE)
        await until(connection, "SELECT count(*) > 0 FROM outbox.attempt WHERE error_class = 'tls'")
        file.write_text("no certificate")
        refused = await replica.event("configuration_refused")
        assert refused["why"].startswith("destinations.shop.tls: cannot use the TLS files")
        new.ca.cert_pem.write_to_path(str(file))
        await replica.event("configuration_read", changed=["destinations.shop.tls.ca_file"])
        await until(connection, "SELECT status = 'done' FROM outbox.job")


async def test_a_bad_file_is_refused_by_key_and_the_old_one_stays_in_use_and_ready(
    installation: Installation, connection: Connection, receiver: Receiver, tmp_path: Path
) -> None:
    port = free_port()
    installation.environment["RELAY_WEB_PORT"] = str(port)
    installation.configure({"shop": {"url": receiver.url()}})
    replica = await installation.start()
    installation.configure({"shop": {"url": receiver.url("/changed"), "max_in_flght": 3}})
    refused = await replica.event("configuration_refused", level="error")
    assert refused["why"] == (
        f"{tmp_path}/relay.yaml:1: destinations.shop.max_in_flght: unknown key; did you mean max_in_flight?"
    )
    await connection.execute(ONE)
    assert [arrival.path for arrival in await receiver.wait_for(1)] == ["/hook"]
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        assert (await client.get("/readyz")).status_code == 200
        assert "\nrelay_config_outdated 1.0\n" in (await client.get("/metrics")).text
        installation.configure({"shop": {"url": receiver.url("/changed")}})
        await reloaded(replica, "destinations.shop.url")
        assert "\nrelay_config_outdated 0.0\n" in (await client.get("/metrics")).text
    # Not once for each look.
    assert len(replica.logged("configuration_refused")) == 1


async def test_a_sighup_without_a_change_says_that_nothing_changed(
    installation: Installation, receiver: Receiver
) -> None:
    installation.configure({"shop": {"url": receiver.url()}})
    replica = await installation.start()
    replica.signal(signal.SIGHUP)
    await replica.event("configuration_read", changed=[], needs_restart=[])


async def test_what_needs_a_restart_is_named_and_the_rest_is_taken_over(
    installation: Installation, receiver: Receiver
) -> None:
    installation.configure({"shop": {"url": receiver.url()}})
    replica = await installation.start()
    installation.configure(
        {"shop": {"url": receiver.url(), "rate_per_s": 5}},
        database={"dsn": installation.dsn, "pool_size": 3},
        replica={"poll_s": 0.25},
        log={"level": "warning"},
    )
    replica.signal(signal.SIGHUP)
    read = await replica.event("configuration_read")
    assert read["changed"] == ["database.pool_size", "destinations.shop.rate_per_s", "log.level", "replica.poll_s"]
    assert read["needs_restart"] == ["database.pool_size", "replica.poll_s"]


async def test_a_deadline_that_the_running_lease_does_not_cover_is_refused(
    installation: Installation, receiver: Receiver
) -> None:
    installation.configure({"shop": {"url": receiver.url()}})
    replica = await installation.start()
    times = {"lease_s": 200, "drain_s": 190, "termination_grace_s": 300}
    installation.configure({"shop": {"url": receiver.url(), "deadline_s": 100}}, replica=times)
    replica.signal(signal.SIGHUP)
    refused = await replica.event("configuration_refused")
    assert "destinations.shop.deadline_s: 100 s + 5 s must be less than replica.lease_s, 90 s" in refused["why"]


async def test_a_removed_destination_ends_what_is_in_flight_gives_back_the_rest_and_goes_on_when_it_returns(
    installation: Installation, connection: Connection, receiver: Receiver
) -> None:
    answering = asyncio.Event()

    async def hold(arrival: Arrival) -> web.StreamResponse:
        if arrival.path == "/hook":
            await answering.wait()
        return await accept(arrival)

    receiver.answer = hold
    both: dict[str, dict[str, object]] = {
        "shop": {"url": receiver.url(), "max_in_flight": 4},
        "mail": {"url": receiver.url("/mail")},
    }
    installation.configure(both)
    replica = await installation.start()
    await connection.execute(INSERT, ("shop", ENTITIES, 40))
    await receiver.wait_arrived(4)
    installation.configure({"mail": both["mail"]})
    await reloaded(replica, "destinations.shop")
    answering.set()
    await until(connection, "SELECT count(*) FILTER (WHERE status = 'running') = 0 FROM outbox.job")
    assert await rows(connection, "SELECT attempts, count(*) FROM outbox.job WHERE status = 'done' GROUP BY 1") == [
        (1, 4)
    ]
    assert await value(connection, "SELECT max(attempts) FROM outbox.job WHERE status <> 'done'") == 0
    await connection.execute("INSERT INTO outbox.job (topic, destination, payload) VALUES ('t', 'mail', '{}')")
    await receiver.wait_until(lambda arrivals: any(arrival.path == "/mail" for arrival in arrivals))
    assert len(receiver.arrivals) == 5
    installation.configure(both)
    await reloaded(replica, "destinations.shop")
    await until(connection, "SELECT count(*) = 41 FROM outbox.job WHERE status = 'done' AND attempts = 1")
    assert replica.logged("job_reclaimed") == []


async def test_destinations_that_come_go_and_change_their_limits_under_load_lose_and_reorder_nothing(
    installation: Installation, connection: Connection, receiver: Receiver
) -> None:
    async def work(arrival: Arrival) -> web.StreamResponse:
        await asyncio.sleep(0.005)
        return await accept(arrival)

    receiver.answer = work
    shop: dict[str, object] = {"url": receiver.url("/shop")}
    mail: dict[str, object] = {"url": receiver.url("/mail")}
    turns: cycle[dict[str, dict[str, object]]] = cycle(
        [
            {"shop": {**shop, "max_in_flight": 2}, "mail": {**mail, "max_in_flight": 30}},
            {"shop": {**shop, "max_in_flight": 50}},
            {"mail": {**mail, "rate_per_s": 200}},
            {"shop": {**shop, "rate_per_s": 300}, "mail": {**mail, "max_in_flight": 1}},
        ]
    )
    installation.configure({"shop": shop, "mail": mail})
    replicas = await installation.start_two()
    for name in ("shop", "mail"):
        await connection.execute(INSERT, (name, ENTITIES, JOBS))
    for done in range(100, 2 * JOBS - 200, 100):
        await receiver.wait_for(done)
        installation.configure(next(turns))
        for replica in replicas:
            replica.signal(signal.SIGHUP)
    installation.configure({"shop": shop, "mail": mail})
    for replica in replicas:
        replica.signal(signal.SIGHUP)
    await until(connection, "SELECT count(*) = %s FROM outbox.job WHERE status = 'done'", 2 * JOBS)
    assert await counts(connection) == {"done": 2 * JOBS}
    lanes: dict[tuple[str, str], list[int]] = defaultdict(list)
    for arrival in receiver.arrivals:
        lanes[arrival.path, arrival.headers["Relay-Entity-Key"]].append(arrival.sequence)
    # Each of them once, and in order.
    assert sum(map(len, lanes.values())) == 2 * JOBS
    assert all(lane == sorted(lane) for lane in lanes.values())
    for replica in replicas:
        assert len(replica.logged("configuration_read")) > 1
        assert replica.logged("configuration_refused") == replica.logged("job_reclaimed") == []


async def test_an_open_breaker_outlasts_a_change_of_its_destination(
    installation: Installation, connection: Connection, receiver: Receiver
) -> None:
    receiver.answer = status(503, Retry_After="3600")
    installation.configure({"shop": {"url": receiver.url()}})
    replica = await installation.start()
    await connection.execute(ONE)
    await receiver.wait_for(1)
    await until(connection, "SELECT status = 'pending' FROM outbox.job")
    receiver.answer = accept
    installation.configure(
        {"shop": {"url": receiver.url(), "max_in_flight": 3}, "mail": {"url": receiver.url("/mail")}}
    )
    await reloaded(replica, "destinations.mail", "destinations.shop.max_in_flight")
    await connection.execute(ONE)
    await connection.execute("INSERT INTO outbox.job (topic, destination, payload) VALUES ('t', 'mail', '{}')")
    assert [arrival.path for arrival in await receiver.wait_for(2)] == ["/hook", "/mail"]
    await until(connection, "SELECT count(*) = 1 FROM outbox.job WHERE status = 'done'")
    assert await counts(connection) == {"done": 1, "pending": 2}
