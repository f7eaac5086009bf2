"""The page about deduplication: whatever comes at the same time, each key has one effect."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from tests.docs.pages import snippet

PAGE = "docs/deduplication.md"
Receive = Callable[..., int]


@pytest.fixture
def receiver(new_database: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection to a receiver's database: its table of keys, and an account."""
    with psycopg.connect(new_database, autocommit=True) as connection:
        connection.execute(snippet(PAGE, "table").encode())
        connection.execute("CREATE TABLE account AS SELECT 0 AS balance")
        yield connection


@pytest.fixture
def receive() -> Receive:
    """The function of the page."""
    names: dict[str, Any] = {}
    exec(snippet(PAGE, "python"), names)  # noqa: S102
    found: Receive = names["receive"]
    return found


def credit(connection: psycopg.Connection[Any], body: bytes) -> None:
    """An effect that two of are seen."""
    connection.execute("UPDATE account SET balance = balance + %s", (int(body),))


def balance(connection: psycopg.Connection[Any]) -> int:
    """What came of the effects."""
    [row] = connection.execute("SELECT balance FROM account").fetchall()
    return int(row[0])


def test_copies_that_come_at_once_have_one_effect(
    receiver: psycopg.Connection[Any], receive: Receive, new_database: str
) -> None:
    together = threading.Barrier(8)

    def copy(key: str) -> int:
        with psycopg.connect(new_database, autocommit=True) as connection:
            together.wait(20)
            return receive(connection, key, b"10", credit)

    with ThreadPoolExecutor(8) as copies:
        answers = list(copies.map(copy, ["key-1", "key-2"] * 4))
    assert answers == [200] * 8
    assert balance(receiver) == 20


def test_a_copy_takes_the_place_of_a_first_one_that_was_rolled_back(
    receiver: psycopg.Connection[Any], receive: Receive, new_database: str
) -> None:
    inside, go = threading.Event(), threading.Event()

    def fail(connection: psycopg.Connection[Any], body: bytes) -> None:
        credit(connection, body)
        inside.set()
        assert go.wait(20)
        raise RuntimeError("after the effect, before the commit")

    def copy(effect: Callable[[psycopg.Connection[Any], bytes], None]) -> int:
        with psycopg.connect(new_database, autocommit=True) as connection:
            return receive(connection, "key-1", b"10", effect)

    with ThreadPoolExecutor(2) as copies:
        first = copies.submit(copy, fail)
        assert inside.wait(20)
        second = copies.submit(copy, credit)
        _until_one_waits(receiver)
        go.set()
        with pytest.raises(RuntimeError):
            first.result()
        assert second.result() == 200
    assert balance(receiver) == 10


def _until_one_waits(connection: psycopg.Connection[Any]) -> None:
    query = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    while connection.execute(query).fetchall() != [(1,)]:
        pass


def test_a_copy_that_would_wait_too_long_is_answered_409(
    receiver: psycopg.Connection[Any], receive: Receive, new_database: str
) -> None:
    answers = []
    impatient: dict[str, Any] = {}
    exec(snippet(PAGE, "python").replace("'5s'", "'50ms'"), impatient)  # noqa: S102

    def effect(connection: psycopg.Connection[Any], body: bytes) -> None:
        with psycopg.connect(new_database, autocommit=True) as second:
            answers.append(impatient["receive"](second, "key-1", body, credit))
        credit(connection, body)

    answers.append(receive(receiver, "key-1", b"10", effect))
    assert answers == [409, 200]
    assert balance(receiver) == 10


def test_old_keys_are_pruned(receiver: psycopg.Connection[Any]) -> None:
    receiver.execute("INSERT INTO received VALUES ('old', now() - interval '61 days'), ('young', now())")
    receiver.execute(snippet(PAGE, "prune").encode())
    assert receiver.execute("SELECT key FROM received").fetchall() == [("young",)]
