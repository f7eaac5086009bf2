"""An outbox on a bad night: dead letters of three kinds, standing lanes, a paused destination, unrouted jobs."""

from dataclasses import dataclass

from tests.conftest import Connection

MARKUP = '{"note": "<script>document.title = \'owned\'</script><img src=x onerror=alert(1)>"}'
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"

_DESTINATIONS = """
INSERT INTO outbox.destination (name, topics, on_dead, paused_at, paused_why) VALUES
    ('billing', '{order.*}', 'block', NULL, NULL),
    ('search', '{order.*}', 'skip', NULL, NULL),
    ('shipping', '{order.paid}', 'block', now() - interval '9 min', 'their maintenance until 18:00')
"""
# Three dead heads of lanes with followers, two letters without an entity, and one that was overtaken.
_JOBS = """
INSERT INTO outbox.job (destination, topic, entity_key, idempotency_key, payload, status, holds_lane, attempts, claims,
                        created_at, finished_at, traceparent)
SELECT 'billing', 'order.paid', 'order-' || n, 'dead-' || n, ('{"order_id": ' || n || ', "total": "19.99"}')::json,
       'dead', true, 3, 3, now() - interval '2 h', now() - n * interval '7 min',
       '00-' || %(trace_id)s || '-b7ad6b7169203331-01'
  FROM generate_series(1, 3) n
 UNION ALL
SELECT 'billing', 'invoice.sent', NULL, 'loose-' || n, %(markup)s::json, 'dead', false, 3, 3, now() - interval '3 h',
       now() - interval '2 h', NULL
  FROM generate_series(1, 2) n
 UNION ALL
SELECT 'search', 'order.paid', 'order-9', 'overtaken', '{}', 'dead', false, 3, 3, now() - interval '3 h',
       now() - interval '2 h', NULL
 UNION ALL
SELECT 'billing', 'order.paid', 'order-' || 1 + n %% 3, 'behind-' || n, '{}', 'blocked', true, 0, 0,
       now() - interval '1 h', NULL, NULL
  FROM generate_series(1, 20) n
 UNION ALL
SELECT 'search', 'order.paid', NULL, 'done-' || n, '{}', 'done', false, 1, 1, now() - interval '40 s',
       now() - n * interval '100 ms', NULL
  FROM generate_series(1, 90) n
 UNION ALL
SELECT 'shipping', 'order.paid', NULL, 'waits-' || n, '{}', 'pending', true, 0, 0, now() - interval '8 min', NULL, NULL
  FROM generate_series(1, 12) n
"""
_FAILURES = """
INSERT INTO outbox.attempt (job_id, claim, attempt, failed_at, replica, error_class, detail, status, duration_s,
                            response)
SELECT j.id, c, c, j.finished_at - (3 - c) * interval '5 min', 'relay-0-5e1f00d5', 'status',
       'answered 503 Service Unavailable', 503, 0.21, convert_to('<html><body>upstream is down</body></html>', 'UTF8')
  FROM outbox.job j CROSS JOIN generate_series(1, 3) c
 WHERE j.status = 'dead'
"""
_BINARY = """
INSERT INTO outbox.job (destination, topic, idempotency_key, body, content_type, headers)
VALUES ('billing', 'order.label', 'binary', '\\x00ff10', 'application/octet-stream', '{"X-Label": "<b>bold</b>"}')
RETURNING id
"""


@dataclass(frozen=True)
class Seeded:
    """The ids of what was put there: `heads` and `loose` are dead for billing, `overtaken` is dead for search."""

    heads: list[int]
    loose: list[int]
    overtaken: int
    done: int
    waits: int
    binary: int
    unrouted: int


async def seed(connection: Connection) -> Seeded:
    """Fill an empty outbox."""
    await connection.execute(_DESTINATIONS)
    await connection.execute(_JOBS, {"trace_id": TRACE_ID, "markup": MARKUP})
    await connection.execute("UPDATE outbox.job SET scheduled_at = NULL")
    await connection.execute(_FAILURES)
    [binary] = await _ids(connection, _BINARY)
    [unrouted] = await _ids(
        connection,
        "INSERT INTO outbox.job (topic, payload) VALUES ('nobody.listens', '{}') RETURNING id",
    )
    found = {
        key: await _ids(connection, "SELECT id FROM outbox.job WHERE idempotency_key LIKE %s ORDER BY id", f"{key}%")
        for key in ("dead-", "loose-", "overtaken", "done-", "waits-")
    }
    return Seeded(
        found["dead-"], found["loose-"], found["overtaken"][0], found["done-"][0], found["waits-"][0], binary, unrouted
    )


async def _ids(connection: Connection, query: str, *parameters: object) -> list[int]:
    cursor = await connection.execute(query.encode(), parameters or None)
    return [row[0] for row in await cursor.fetchall()]


async def one(connection: Connection, query: str, *parameters: object) -> tuple[object, ...]:
    """The only row of a query."""
    cursor = await connection.execute(query.encode(), parameters or None)
    [row] = await cursor.fetchall()
    return tuple(row)
