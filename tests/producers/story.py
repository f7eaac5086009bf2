"""What every page plays: order 42 is paid, order 13 is refused at COMMIT, three orders are created at once."""

import psycopg
from psycopg.rows import TupleRow

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
REFUSED = "order 13 is refused at COMMIT"
CREATED = [1001, 1002, 1003]
JOBS = b"SELECT destination, topic, entity_key, payload::text, traceparent FROM outbox.job ORDER BY id"


def jobs(owner: str) -> list[TupleRow]:
    """Every job as it was written, in the order of ids."""
    with psycopg.connect(owner) as connection:
        return connection.execute(JOBS).fetchall()


def assert_paid(owner: str, job_id: object, *, compact: bool = False) -> None:
    """Order 42 is paid and has a job for each subscriber, `job_id` being the first; order 13 left nothing."""
    assert jobs(owner) == _paid(compact=compact)
    with psycopg.connect(owner) as connection:
        assert connection.execute("SELECT min(id) FROM outbox.job").fetchall() == [(int(str(job_id)),)]
        orders = connection.execute("SELECT id, status FROM shop.orders ORDER BY id").fetchall()
    assert orders == [(13, "new"), (42, "paid")]


def assert_created(owner: str, *, compact: bool = False) -> None:
    """And then each of the orders that were created at once has its jobs, in their order."""
    created = [
        (destination, "order.created", f"order-{order}", _form(f'{{"order_id": {order}}}', compact=compact), None)
        for order in CREATED
        for destination in ("billing", "search")
    ]
    assert jobs(owner) == _paid(compact=compact) + created
    with psycopg.connect(owner) as connection:
        query = b"SELECT id, status FROM shop.orders WHERE id > 42 ORDER BY id"
        assert connection.execute(query).fetchall() == [(order, "new") for order in CREATED]


def _paid(*, compact: bool) -> list[TupleRow]:
    payload = _form('{"order_id": 42, "total": "19.99"}', compact=compact)
    return [(name, "order.paid", "order-42", payload, TRACEPARENT) for name in ("billing", "search")]


def _form(payload: str, *, compact: bool) -> str:
    return payload.replace(" ", "") if compact else payload
