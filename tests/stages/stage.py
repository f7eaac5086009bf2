"""What the tests of several stages need: jobs to handle, and rows to claim."""

from relay.model import Job
from relay.rows import Range
from relay.store import Store
from tests.conftest import Connection

LEASE_S = 60.0
MIB = 1 << 20


def job(number: int, *, destination: str = "shop", chained: int = 0, attempts: int = 1) -> Job:
    """A claimed job with 10 bytes of body."""
    return Job(
        id=number,
        destination=destination,
        topic="t",
        entity_key=None,
        idempotency_key=f"key-{number}",
        content_type="application/json",
        body=b"0123456789",
        headers={},
        attempts=attempts,
        claims=attempts,
        chained=chained,
    )


async def insert(connection: Connection, number: int, lane: str | None = None) -> None:
    """Insert `number` jobs for `shop`; an `n` in braces in the name of the lane makes it one lane for each."""
    await connection.execute(
        "INSERT INTO outbox.job (topic, destination, entity_key, payload)"
        " SELECT 't', 'shop', replace(%s, '{n}', n::text), '{}' FROM generate_series(1, %s) n",
        (lane, number),
    )


async def insert_retries(connection: Connection, number: int) -> None:
    """Insert `number` jobs for `shop` that failed once and are due since an hour."""
    await connection.execute("SET session_replication_role = replica")
    await connection.execute(
        "INSERT INTO outbox.job (topic, destination, payload, attempts, claims, run_at)"
        " SELECT 't', 'shop', '{}', 1, 1, now() - interval '1 hour' FROM generate_series(1, %s)",
        (number,),
    )
    await connection.execute("SET session_replication_role = origin")


async def claim(store: Store, number: int) -> list[Job]:
    """Claim up to `number` jobs of `shop`."""
    ranges = [Range("shop", 1, number, number, retries=retries) for retries in (False, True)]
    claimed = await store.claim(ranges, payload_bytes=64 * MIB)
    return claimed.jobs


async def statuses(connection: Connection) -> list[str]:
    """The status of each job, by id."""
    cursor = await connection.execute("SELECT status FROM outbox.job ORDER BY id")
    return [row[0] for row in await cursor.fetchall()]
