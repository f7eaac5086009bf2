"""What the tests ask the table, and how they wait for it: a row of another process raises no event here."""

import asyncio
from typing import Any, LiteralString

from tests.conftest import Connection

PATIENCE_S = 60.0


async def rows(connection: Connection, query: LiteralString, *parameters: object) -> list[tuple[Any, ...]]:
    """The rows of a query."""
    cursor = await connection.execute(query, parameters or None)
    return await cursor.fetchall()


async def value(connection: Connection, query: LiteralString, *parameters: object) -> Any:
    """The one value of a query."""
    [[found]] = await rows(connection, query, *parameters)
    return found


async def until(connection: Connection, query: LiteralString, *parameters: object) -> None:
    """Ask again until the query's one value is true (60 s at most)."""
    async with asyncio.timeout(PATIENCE_S):
        while not await value(connection, query, *parameters):
            await asyncio.sleep(0.02)


async def counts(connection: Connection) -> dict[str, int]:
    """How many jobs of each status there are."""
    return dict(await rows(connection, "SELECT status, count(*) FROM outbox.job GROUP BY status"))
