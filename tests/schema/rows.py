"""Rows of `outbox.job` as tests write and read them."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from psycopg import AsyncConnection, sql
from psycopg.rows import TupleRow

Connection = AsyncConnection[TupleRow]


@contextlib.asynccontextmanager
async def connected(dsn: str) -> AsyncIterator[Connection]:
    """A connection in autocommit."""
    async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
        yield connection


async def insert(connection: Connection, **columns: object) -> int:
    """Insert one row, a job for `shop` unless told otherwise, and return its id; None writes NULL."""
    columns = {"destination": "shop", "topic": "order.paid"} | columns
    if not columns.keys() & {"payload", "body"}:
        columns["payload"] = "{}"
    statement = sql.SQL("INSERT INTO outbox.job ({}) VALUES ({}) RETURNING id").format(
        sql.SQL(", ").join(map(sql.Identifier, columns)), sql.SQL(", ").join(sql.Placeholder() * len(columns))
    )
    return int(await value(connection, statement, *columns.values()))


async def subscribe(connection: Connection, name: str, *topics: str) -> None:
    """Register a destination."""
    await connection.execute("INSERT INTO outbox.destination (name, topics) VALUES (%s, %s)", [name, list(topics)])


async def rows(connection: Connection, query: str | sql.Composed, *parameters: object) -> list[TupleRow]:
    """Every row of a query."""
    cursor = await connection.execute(query.encode() if isinstance(query, str) else query, parameters or None)
    return await cursor.fetchall()


async def column(connection: Connection, query: str, *parameters: object) -> list[Any]:
    """The first column of a query."""
    return [row[0] for row in await rows(connection, query, *parameters)]


async def value(connection: Connection, query: str | sql.Composed, *parameters: object) -> Any:
    """The first column of the only row of a query."""
    [row] = await rows(connection, query, *parameters)
    return row[0]
