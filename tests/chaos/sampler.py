"""Looks at the table again and again: at no instant may two jobs of a lane run."""

import asyncio

import psycopg
from psycopg import AsyncConnection

_EVERY_S = 0.05
_DOUBLED = b"""
SELECT count(*)
  FROM (SELECT FROM outbox.job WHERE status = 'running' AND entity_key IS NOT NULL
         GROUP BY destination, entity_key HAVING count(*) > 1) d
"""


class Sampler:
    """Samples until it is told to stop; while the database is away it tries again."""

    def __init__(self, dsn: str) -> None:
        self.samples = 0
        self.doubled = 0
        self.stopping = False
        self._dsn = dsn

    async def run(self) -> None:
        """Counts the instants looked at, and the lanes of which two jobs ran at one of them."""
        while not self.stopping:
            try:
                async with await AsyncConnection.connect(self._dsn, autocommit=True) as connection:
                    while not self.stopping:
                        [doubled] = await (await connection.execute(_DOUBLED)).fetchone() or (0,)
                        self.samples += 1
                        self.doubled += doubled
                        await asyncio.sleep(_EVERY_S)
            except psycopg.OperationalError:
                await asyncio.sleep(_EVERY_S)
