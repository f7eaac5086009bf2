"""Writes schema/catalog.txt, what the migrations build, from a fresh database: `make catalog`."""

import asyncio
from pathlib import Path

from relay.database import Database
from relay.demo.nest import Nest
from relay.demo.postgres import Postgres
from relay.migrate import migrate

CATALOG = Path(__file__).parents[2] / "schema" / "catalog.txt"


async def snapshot(dsn: str) -> str:
    """The text of schema/catalog.txt for a database."""
    async with Database(dsn, name="snapshot") as connections:
        _, rows = await connections.transact(("search_path", {}), ("catalog", {}))
    return "".join("\t".join(map(str, row)) + "\n" for row in sorted(rows))


async def _write(dsn: str) -> None:
    await migrate(dsn)
    CATALOG.write_text(await snapshot(dsn))


if __name__ == "__main__":
    with Nest() as nest, Postgres(nest, tcp=True) as postgres:
        asyncio.run(_write(postgres.create_database("snapshot")))
