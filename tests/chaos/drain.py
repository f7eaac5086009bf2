"""The end of a run: what is left is delivered, until nothing moves."""

import asyncio
import time

import psycopg
from psycopg import AsyncConnection

from tests.chaos.faults import dead, redrive

_PATIENCE_S = 90.0
# Work that can still move: neither final nor standing behind a dead job.
_MOVING = b"""
SELECT count(*)
  FROM outbox.job j
 WHERE j.status IN ('pending', 'running', 'blocked', 'unrouted')
   AND NOT EXISTS (SELECT FROM outbox.job d
                    WHERE d.status = 'dead' AND d.holds_lane
                      AND d.destination = j.destination AND d.entity_key = j.entity_key)
"""


async def drained(dsn: str, *, redrives: bool) -> None:
    """Waits until nothing moves, and with `redrives` once more after all dead jobs were made due; 90 s at most."""
    end_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end_s:
        try:
            async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
                if (await (await connection.execute(_MOVING)).fetchone()) == (0,):
                    if not redrives:
                        return
                    redrives = False
                    await redrive(dsn, await dead(connection), force=True)
        except psycopg.OperationalError:
            pass
        await asyncio.sleep(0.5)
