"""What arrives at a receiver when a row was inserted, and what becomes of the row."""

from itertools import pairwise

from aiohttp import web
from standardwebhooks import Webhook

from relay import __version__
from tests.conftest import Connection
from tests.receiver import Arrival, Receiver, accept, status
from tests.service.replica import SECRET, Installation
from tests.service.table import counts, rows, until, value

OTHER_SECRET = "whsec_" + "REVG" * 8


async def test_a_row_inserted_with_plain_sql_arrives_as_a_post_with_its_bytes_all_headers_and_a_true_signature(
    installation: Installation, connection: Connection, receiver: Receiver
) -> None:
    installation.environment["TOKEN"] = "Bearer abc"
    installation.configure({"shop": {"url": receiver.url("/in?v=1"), "headers": {"Authorization": {"env": "TOKEN"}}}})
    await installation.start()
    payload = '{"a" : 1.0, "a":2,  "big": 12345678901234567890, "name": "Müller \U0001f680"}'
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await connection.execute(
        "INSERT INTO outbox.job"
        " (topic, destination, entity_key, payload, headers, idempotency_key, traceparent, tracestate)"
        " VALUES ('order.paid', 'shop', 'Müller 42', %s, '{\"X-Tenant\": \"acme\"}', 'order-42', %s, 'vendor=1')",
        (payload, trace),
    )
    [arrival] = await receiver.wait_for(1)
    assert (arrival.path, arrival.body) == ("/in", payload.encode())
    headers = {name.lower(): text for name, text in arrival.headers.items()}
    Webhook(SECRET).verify(arrival.body, headers)
    assert headers.pop("webhook-timestamp").isdigit()
    assert headers.pop("webhook-signature").startswith("v1,")
    assert headers == {
        "host": f"127.0.0.1:{receiver.port}",
        "content-length": str(len(payload.encode())),
        "content-type": "application/json",
        "user-agent": f"outbox-relay/{__version__}",
        "idempotency-key": "order-42",
        "webhook-id": "order-42",
        "traceparent": trace,
        "tracestate": "vendor=1",
        "relay-topic": "order.paid",
        "relay-entity-key": "M%C3%BCller%2042",
        "relay-sequence": "1",
        "relay-attempt": "1",
        "authorization": "Bearer abc",
        "x-tenant": "acme",
    }
    await until(connection, "SELECT status = 'done' FROM outbox.job")


async def test_a_binary_body_arrives_byte_for_byte_with_its_content_type(
    installation: Installation, connection: Connection, receiver: Receiver
) -> None:
    installation.configure({"shop": {"url": receiver.url()}})
    await installation.start()
    body = bytes(range(256)) * 16
    await connection.execute(
        "INSERT INTO outbox.job (topic, destination, body, content_type) VALUES ('t', 'shop', %s, 'image/x-raw')",
        (body,),
    )
    [arrival] = await receiver.wait_for(1)
    assert (arrival.body, arrival.headers["Content-Type"]) == (body, "image/x-raw")


async def test_a_row_without_destination_reaches_every_subscriber_with_one_key_and_its_own_signature(
    installation: Installation, connection: Connection, receiver: Receiver
) -> None:
    installation.environment["OTHER"] = OTHER_SECRET
    installation.configure(
        {
            "billing": {"url": receiver.url("/billing"), "topics": ["order.*"]},
            "search": {"url": receiver.url("/search"), "topics": ["*"], "secrets": [{"env": "OTHER"}]},
            "mail": {"url": receiver.url("/mail"), "topics": ["user.*"]},
        }
    )
    assert (await installation.command("sync")).code == 0
    await installation.start()
    await connection.execute("INSERT INTO outbox.job (topic, payload) VALUES ('order.paid', '{}')")
    arrivals = {arrival.path: arrival for arrival in await receiver.wait_for(2)}
    assert arrivals.keys() == {"/billing", "/search"}
    Webhook(SECRET).verify(arrivals["/billing"].body, dict(arrivals["/billing"].headers))
    Webhook(OTHER_SECRET).verify(arrivals["/search"].body, dict(arrivals["/search"].headers))
    assert arrivals["/billing"].key == arrivals["/search"].key
    await until(connection, "SELECT count(*) = 2 FROM outbox.job WHERE status = 'done'")


async def test_a_failed_job_is_sent_again_later_with_the_same_key_and_body_and_a_fresh_signature(
    installation: Installation, connection: Connection, receiver: Receiver
) -> None:
    async def fail_twice(arrival: Arrival) -> web.StreamResponse:
        return web.Response(status=204 if arrival.headers["Relay-Attempt"] == "3" else 500, text="not yet")

    receiver.answer = fail_twice
    installation.configure({"shop": {"url": receiver.url(), "retry": {"base_s": 1, "factor": 1.5, "cap_s": 9}}})
    await installation.start()
    await connection.execute("INSERT INTO outbox.job (topic, destination, payload) VALUES ('t', 'shop', '[1]')")
    arrivals = await receiver.wait_for(3)
    assert [arrival.headers["Relay-Attempt"] for arrival in arrivals] == ["1", "2", "3"]
    assert len({(arrival.key, arrival.body, arrival.sequence) for arrival in arrivals}) == 1
    for arrival in arrivals:
        Webhook(SECRET).verify(arrival.body, dict(arrival.headers))
    for before, after in pairwise(arrivals):
        assert int(after.headers["webhook-timestamp"]) > int(before.headers["webhook-timestamp"])
        assert after.headers["webhook-signature"] != before.headers["webhook-signature"]
    # Never sooner than the schedule says.
    waits_s = [after.started - before.started for before, after in pairwise(arrivals)]
    assert waits_s[0] >= 1.0
    assert waits_s[1] >= 1.5
    await until(connection, "SELECT status = 'done' FROM outbox.job")
    kept = await rows(connection, "SELECT attempt, error_class, status, response FROM outbox.attempt ORDER BY attempt")
    assert kept == [(1, "status", 500, b"not yet"), (2, "status", 500, b"not yet")]


async def test_a_job_is_dead_after_its_budget_and_not_sent_again(
    installation: Installation, connection: Connection, receiver: Receiver
) -> None:
    receiver.answer = status(500)
    installation.configure({"shop": {"url": receiver.url(), "retry": {"max_attempts": 3}}})
    replica = await installation.start()
    await connection.execute(
        "INSERT INTO outbox.job (topic, destination, payload, max_attempts)"
        " VALUES ('t', 'shop', '{}', NULL), ('t', 'shop', '{}', 1)"
    )
    await replica.event("job_dead", job=1, attempts=3)
    await replica.event("job_dead", job=2, attempts=1)
    assert await rows(connection, "SELECT status, attempts, claims FROM outbox.job ORDER BY id") == [
        ("dead", 3, 3),
        ("dead", 1, 1),
    ]
    assert await value(connection, "SELECT count(*) FROM outbox.attempt") == 4
    receiver.answer = accept
    await connection.execute("INSERT INTO outbox.job (topic, destination, payload) VALUES ('t', 'shop', '{}')")
    arrivals = await receiver.wait_until(lambda arrivals: arrivals[-1].sequence == 3)
    assert len(arrivals) == 5


async def test_behind_a_dead_job_its_lane_stands_still_with_block_and_goes_on_with_skip(
    installation: Installation, connection: Connection, receiver: Receiver
) -> None:
    async def refuse_poison(arrival: Arrival) -> web.StreamResponse:
        return web.Response(status=500 if arrival.body == b'"poison"' else 204)

    receiver.answer = refuse_poison
    once = {"retry": {"max_attempts": 1}}
    installation.configure(
        {
            "strict": {"url": receiver.url("/strict"), "on_dead": "block", **once},
            "lax": {"url": receiver.url("/lax"), "on_dead": "skip", **once},
        }
    )
    await installation.start()
    await connection.execute(
        "INSERT INTO outbox.job (topic, destination, entity_key, payload)"
        " SELECT 't', destination, 'one', payload::json"
        "   FROM unnest('{strict,lax}'::text[]) destination, unnest('{\"\\\"poison\\\"\",1,2}'::text[]) payload"
    )
    await receiver.wait_until(
        lambda arrivals: [a.body for a in arrivals if a.path == "/lax"] == [b'"poison"', b"1", b"2"]
    )
    await until(connection, "SELECT count(*) = 2 FROM outbox.job WHERE status = 'dead'")
    # Another entity of the strict destination, sent after all that.
    await connection.execute(
        "INSERT INTO outbox.job (topic, destination, entity_key, payload) VALUES ('t', 'strict', 'two', '3')"
    )
    await receiver.wait_until(lambda arrivals: arrivals[-1].body == b"3")
    assert [a.body for a in receiver.answered if a.path == "/strict"] == [b'"poison"', b"3"]
    await until(connection, "SELECT count(*) = 3 FROM outbox.job WHERE status = 'done'")
    standing = (
        "SELECT status, holds_lane FROM outbox.job WHERE destination = 'strict' AND entity_key = 'one' ORDER BY id"
    )
    assert await rows(connection, standing) == [("dead", True), ("blocked", True), ("blocked", True)]


async def test_rows_of_a_destination_that_the_replica_does_not_know_stay_untouched(
    installation: Installation, connection: Connection, receiver: Receiver
) -> None:
    installation.configure({"shop": {"url": receiver.url()}})
    await installation.start()
    await connection.execute(
        "INSERT INTO outbox.job (topic, destination, entity_key, payload)"
        " VALUES ('t', 'elsewhere', 'a', '{}'), ('t', 'elsewhere', 'a', '{}'), ('t', 'shop', 'a', '{}')"
    )
    before = await rows(
        connection, "SELECT xmin::text, j.* FROM outbox.job j WHERE destination = 'elsewhere' ORDER BY id"
    )
    await receiver.wait_for(1)
    await until(connection, "SELECT status = 'done' FROM outbox.job WHERE destination = 'shop'")
    after = await rows(
        connection, "SELECT xmin::text, j.* FROM outbox.job j WHERE destination = 'elsewhere' ORDER BY id"
    )
    assert after == before
    assert await counts(connection) == {"pending": 2, "done": 1}
