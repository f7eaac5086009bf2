"""The page about moving: order and keys are kept, and nothing becomes two jobs, however often it is run."""

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from tests.docs.pages import snippet

PAGE = "docs/moving.md"
OWN = b"INSERT INTO outbox_events (event_type, aggregate_id, payload) VALUES ('order.paid', %s, %s)"
DEBEZIUM = b"INSERT INTO outboxevent VALUES (%s, 'order', %s, 'paid', %s)"
UUIDS = [uuid.UUID(int=n) for n in (9, 3, 7, 1, 5)]  # not in the order in which they are inserted


@pytest.fixture
def old(database: str) -> Iterator[Connection[TupleRow]]:
    """A connection of an application's user, who owns the old tables and may insert jobs."""
    with psycopg.connect(database, autocommit=True) as superuser:
        superuser.execute("CREATE ROLE old LOGIN IN ROLE outbox_producer")
        superuser.execute("CREATE SCHEMA old AUTHORIZATION old")
        with psycopg.connect(database, user="old", autocommit=True, options="-c search_path=old") as connection:
            yield connection
        superuser.execute("DROP SCHEMA old CASCADE")
        superuser.execute("DROP ROLE old")


def run(connection: Connection[TupleRow], *names: str) -> None:
    """Run snippets of the page."""
    for name in names:
        connection.execute(snippet(PAGE, name).encode())


def jobs(database: str) -> list[TupleRow]:
    """Every job, in the order of ids."""
    with psycopg.connect(database) as connection:
        query = b"SELECT topic, entity_key, payload::text, idempotency_key FROM outbox.job ORDER BY id"
        return connection.execute(query).fetchall()


def moved_own(*numbers: int) -> list[TupleRow]:
    """The jobs of rows of the own table."""
    return [("order.paid", f"order-{n % 2}", f'{{"n": {n}}}', f"outbox_events-{n}") for n in numbers]


def write_own(connection: Connection[TupleRow], *numbers: int) -> None:
    """Rows of the own table, in turn for two entities."""
    for n in numbers:
        connection.execute(OWN, (f"order-{n % 2}", f'{{"n": {n}}}'))


def test_a_table_of_ones_own_moves_what_waits_in_order_and_forwards_what_comes(
    old: Connection[TupleRow], database: str
) -> None:
    run(old, "own table")
    write_own(old, 1, 2, 3, 4)
    old.execute("UPDATE outbox_events SET published_at = now() WHERE id = 1")
    old.execute("UPDATE outbox_events SET payload = payload WHERE id = 2")  # lies behind the others now
    run(old, "own move")
    write_own(old, 5, 6)
    assert jobs(database) == moved_own(2, 3, 4, 5, 6)
    run(old, "own move")
    assert jobs(database) == moved_own(2, 3, 4, 5, 6)
    assert old.execute("SELECT count(*) FROM outbox_events WHERE published_at IS NULL").fetchone() == (0,)


def test_a_move_that_is_rolled_back_leaves_what_waits(old: Connection[TupleRow], database: str) -> None:
    run(old, "own table")
    write_own(old, 1, 2)
    old.execute("UPDATE outbox_events SET event_type = 'no topic' WHERE id = 2")
    with pytest.raises(psycopg.errors.CheckViolation, match="job_topic_is_dotted_words"):
        run(old, "own move")
    old.execute("ROLLBACK")
    assert jobs(database) == []
    old.execute("UPDATE outbox_events SET event_type = 'order.paid' WHERE id = 2")
    run(old, "own move")
    assert jobs(database) == moved_own(1, 2)


def test_a_row_that_commits_during_the_move_is_a_job(old: Connection[TupleRow], database: str) -> None:
    run(old, "own table")
    waiting = b"SELECT count(*) FROM pg_locks WHERE relation = 'old.outbox_events'::regclass AND NOT granted"
    with (
        psycopg.connect(database, user="old", options="-c search_path=old") as writer,
        psycopg.connect(database, autocommit=True) as observer,
        ThreadPoolExecutor(1) as thread,
    ):
        write_own(writer, 1)
        moving = thread.submit(run, old, "own move")
        while observer.execute(waiting).fetchone() != (1,):
            pass
        writer.commit()
        moving.result()
    assert jobs(database) == moved_own(1)


def write_debezium(connection: Connection[TupleRow], *numbers: int) -> None:
    """Rows of Debezium's table, in turn for two entities."""
    for n in numbers:
        connection.execute(DEBEZIUM, (UUIDS[n], str(n % 2), f'{{"n": {n}}}'))


def moved_debezium(*numbers: int) -> list[TupleRow]:
    """The jobs of rows of Debezium's table."""
    return [("order.paid", f"order-{n % 2}", f'{{"n": {n}}}', str(UUIDS[n])) for n in numbers]


def test_debeziums_table_forwards_what_comes_once(old: Connection[TupleRow], database: str) -> None:
    run(old, "debezium table")
    write_debezium(old, 0)
    run(old, "debezium forward", "debezium forward")
    write_debezium(old, 1, 2)
    assert jobs(database) == moved_debezium(1, 2)


def test_debeziums_table_moves_what_waits_in_order_and_once(old: Connection[TupleRow], database: str) -> None:
    run(old, "debezium table")
    write_debezium(old, 0, 1, 2)
    move = snippet(PAGE, "debezium move")
    forward = snippet(PAGE, "debezium forward")
    lock = "SHARE ROW EXCLUSIVE MODE;\n"
    for _ in range(2):
        old.execute(forward.replace(lock, lock + move).encode())
    write_debezium(old, 3, 4)
    assert jobs(database) == moved_debezium(0, 1, 2, 3, 4)


def test_a_null_payload_of_debeziums_is_sent_as_null(old: Connection[TupleRow], database: str) -> None:
    run(old, "debezium table", "debezium forward")
    old.execute(DEBEZIUM, (UUIDS[0], "0", None))
    assert jobs(database) == [("order.paid", "order-0", "null", str(UUIDS[0]))]


def test_a_job_queues_table_moves_what_waits_once(old: Connection[TupleRow], database: str) -> None:
    old.execute(
        "CREATE TABLE queue_jobs (id bigserial, queue text, state text, args jsonb, run_at timestamptz, priority int)"
    )
    args = '{"destination": "shop", "body": {"n": 1}}'
    for queue, state in (("webhooks", "available"), ("webhooks", "executing"), ("mails", "available")):
        old.execute(
            "INSERT INTO queue_jobs (queue, state, args, run_at, priority) VALUES (%s, %s, %s, '2099-01-01+00', 9)",
            (queue, state, args),
        )
    run(old, "queue move", "queue move")
    assert jobs(database) == [("webhook", None, '{"n": 1}', "queue_jobs-1")]
    with psycopg.connect(database) as connection:
        query = "SELECT destination, priority, run_at = '2099-01-01+00' FROM outbox.job"
        assert connection.execute(query).fetchall() == [("shop", 3, True)]
