"""A login with the role outbox_relay can do all of a relay's work."""

import re

import pytest
from psycopg.conninfo import make_conninfo

from relay.admin import Admin
from relay.database import SQL, Database
from relay.errors import RelayError
from relay.model import Destination, ErrorClass, Failure, RetryPolicy, Settlement
from relay.rows import Range
from relay.store import Store
from tests.schema.rows import Connection, insert


@pytest.mark.parametrize("name", sorted(SQL.keys() - {"registry_lock"}))
async def test_a_relay_may_run_each_of_its_statements(replica: Connection, name: str) -> None:
    # EXPLAIN asks for the same privileges as the statement.
    parameters = dict.fromkeys(re.findall(rb"%\((\w+)\)s", SQL[name]))
    await replica.execute(b"EXPLAIN " + SQL[name], {key.decode(): None for key in parameters})


async def test_a_relay_goes_through_its_work(database: str, producer: Connection) -> None:
    async with Database(make_conninfo(database, user="schema_relay"), name="relay-test") as connections:
        await operate(Admin(connections))
        await insert(producer, entity_key="order-1")
        await insert(producer, entity_key="order-1")
        await work(Store(connections, locked_by="here", lease_s=60), Store(connections, locked_by="lost", lease_s=0))


async def operate(admin: Admin) -> None:
    """Every verb of the operator."""
    assert await admin.missing_privileges() == []
    await admin.sync([Destination("shop", "", on_dead="skip")], generation=1, retire=[])
    await admin.sync([], generation=2, retire=["shop"])
    with pytest.raises(RelayError):
        await admin.sync([], generation=1, retire=[])
    await admin.pause("shop", "closed")
    assert await admin.resume("shop")
    assert [destination.name for destination in (await admin.status()).destinations] == ["shop"]


async def work(store: Store, late: Store) -> None:
    """Every step of the pipeline, with one lease that lapses at once."""
    ranges = [Range("shop", 1, free=1, width=10, retries=retries) for retries in (False, True)]
    [lapsing] = (await late.claim(ranges, payload_bytes=1_000)).jobs
    await store.reclaim([Destination("shop", "", retry=RetryPolicy(max_attempts=9))], limit=10)
    [job] = (await store.claim(ranges, payload_bytes=1_000)).jobs
    assert job.id == lapsing.id
    assert await late.renew([lapsing.id], [lapsing.claims]) == (set(), {lapsing.id})
    failure = Failure(ErrorClass.STATUS, "410", 0.1, 410)
    dead = Settlement(job, "dead", holds_lane=True, pauses=True, failure=failure)
    assert (await store.settle([dead])).ids == {job.id}
    assert await store.release_standing_lanes(["shop"], limit=10) == 1
    await store.heal(("", ""), limit=10)
    await store.retain_jobs(0, limit=10)
    await store.retain_attempts(0, limit=10)
    await store.retain_dead(0, limit=10)
    await store.set_idle(idle=True)
