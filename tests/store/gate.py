"""Stops the relay's statements in the middle, so that a test decides what happens meanwhile."""

import asyncio
from dataclasses import dataclass
from typing import Literal

from psycopg import sql

from tests.conftest import Connection

# In the function a lock timeout of its own: whoever is stopped here must not give up, as a claim soon would.
FUNCTION = """
CREATE OR REPLACE FUNCTION public.gate() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = 0 AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(4711);
    RETURN NEW;
END
$$
"""


@dataclass(frozen=True)
class Gate:
    """An advisory lock that rows which enter a state must pass. `witness` holds it while the gate is closed."""

    witness: Connection

    async def close(self, status: str, when: Literal["BEFORE", "AFTER"] = "BEFORE") -> None:
        """From now on an UPDATE that brings a row into `status` stops there, holding the locks it has."""
        await self.witness.execute(FUNCTION.encode())
        await self.witness.execute(
            sql.SQL(
                "CREATE TRIGGER gate {} UPDATE ON outbox.job FOR EACH ROW "
                "WHEN (NEW.status = {} AND OLD.status <> {}) EXECUTE FUNCTION public.gate()"
            ).format(sql.SQL(when), status, status)
        )
        await self.witness.execute("SELECT pg_advisory_lock(4711)")

    async def open(self) -> None:
        """Lets everybody through, for good."""
        await self.witness.execute("SELECT pg_advisory_unlock_all()")

    async def remove(self) -> None:
        """Takes the gate down."""
        await self.open()
        # Not at the price of a test that hangs: somebody may be in the middle of a transaction.
        await self.witness.execute("SET lock_timeout = '10s'")
        await self.witness.execute("DROP TRIGGER IF EXISTS gate ON outbox.job")

    async def stopped(self, name: str) -> None:
        """Returns when the replica `name` has come to the gate."""
        await self._wait(name, "advisory")

    async def waits(self, name: str, event: Literal["transactionid", "tuple"] = "transactionid") -> str:
        """Returns when the replica `name` waits for another transaction; since when its own runs."""
        return await self._wait(name, event)

    async def _wait(self, name: str, event: str) -> str:
        async with asyncio.timeout(20):
            while True:
                found = await self.witness.execute(
                    "SELECT xact_start::text FROM pg_stat_activity WHERE application_name = %s AND wait_event = %s",
                    [name, event],
                )
                if row := await found.fetchone():
                    return str(row[0])
