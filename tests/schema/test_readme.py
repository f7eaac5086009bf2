"""The producer's contract says what the database does."""

import re
from pathlib import Path

import psycopg
import pytest

from tests.schema.rows import Connection, column, rows

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "schema" / "README.md").read_text()


def test_it_fits_on_one_screen() -> None:
    lines = TEXT.splitlines()
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 120


async def test_its_columns_are_the_ones_a_producer_may_write(connection: Connection) -> None:
    granted = await column(
        connection,
        "SELECT column_name::text FROM information_schema.column_privileges WHERE grantee = 'outbox_producer'"
        " AND table_schema = 'outbox' AND table_name = 'job' AND privilege_type = 'INSERT'",
    )
    assert sorted(re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE)) == sorted(granted)


async def test_its_example_runs_for_a_producer(connection: Connection, producer: Connection) -> None:
    await producer.execute("CREATE TEMP TABLE orders (id int, status text)")
    [example] = re.findall(r"```sql\n(.*?)```", TEXT, re.DOTALL)
    await producer.execute(example.encode())
    assert await rows(connection, "SELECT topic, entity_key, status FROM outbox.job") == [
        ("order.paid", "order-42", "unrouted")
    ]


async def test_its_error_is_the_servers(producer: Connection) -> None:
    [(expected, sqlstate)] = re.findall(r"ERROR: (.*?)  \(SQLSTATE (\d+)\)", TEXT)
    with pytest.raises(psycopg.Error) as refused:
        await producer.execute("INSERT INTO outbox.job (topic, entity_key, payload) VALUES ('x', '', '{}')")
    assert (refused.value.diag.message_primary, refused.value.sqlstate) == (expected, sqlstate)


async def test_it_names_every_status(connection: Connection) -> None:
    [rule] = await column(
        connection, "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'job_status_is_known'"
    )
    last = TEXT[TEXT.index("**What becomes of it**") :]
    assert set(re.findall(r"'(\w+)'::text", rule)) == set(re.findall(r"`(\w+)`", last)) - {"status", "outbox_reader"}
