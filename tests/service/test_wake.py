"""How an idle replica learns of a new job: told by NOTIFY, or by looking."""

import psycopg
import pytest

from tests.conftest import POOLER, Connection
from tests.receiver import Receiver
from tests.service.replica import Installation
from tests.service.table import until, value

# Nothing but the claims uses the pool then.
QUIET = {"sweep_s": 3600}
IDLE = "SELECT pg_sequence_last_value('outbox.idle') = 1"
SILENT_FOR = (
    "SELECT now() - max(state_change) > %s * interval '1 s' FROM pg_stat_activity"
    " WHERE datname = current_database() AND application_name LIKE 'relay %%' AND application_name NOT LIKE '%% listen'"
)
INSERT = "INSERT INTO outbox.job (topic, destination, payload) VALUES ('t', 'shop', %s)"


@pytest.mark.skipif(POOLER == "poll", reason="a pooler in transaction mode swallows it")
async def test_a_notify_wakes_an_idle_replica_long_before_it_would_have_looked(
    installation: Installation, connection: Connection, receiver: Receiver
) -> None:
    installation.configure({"shop": {"url": receiver.url()}}, replica={"poll_s": 600}, retention=QUIET)
    await installation.start()
    # The pause between two looks doubles while nothing comes: after this silence it is at least as long again.
    waits_s = {"announced": 0.0, "unannounced": 0.0}
    for number in range(3):
        for kind in waits_s:
            await until(connection, IDLE)
            await until(connection, SILENT_FOR, 0.8)
            # A session of this role fires no triggers, so nobody is told.
            await connection.execute(
                "SELECT set_config('session_replication_role', %s, false)",
                ("replica" if kind == "unannounced" else "origin",),
            )
            await connection.execute(INSERT, (f'"{kind} {number}"',))
            await receiver.wait_for(len(receiver.arrivals) + 1)
            await until(connection, "SELECT bool_and(status = 'done') FROM outbox.job")
            waits_s[kind] += await value(
                connection,
                "SELECT extract(epoch FROM finished_at - created_at)::float8 FROM outbox.job ORDER BY id DESC LIMIT 1",
            )
    assert waits_s["announced"] < waits_s["unannounced"] / 2


async def test_a_long_transaction_that_commits_after_all_went_idle_is_found_by_the_poll(
    installation: Installation, connection: Connection, receiver: Receiver
) -> None:
    installation.configure({"shop": {"url": receiver.url()}}, retention=QUIET)
    async with await psycopg.AsyncConnection.connect(installation.dsn) as producer:
        # Nobody is idle yet, so the trigger stays silent.
        await producer.execute(INSERT, ("1",))
        await installation.start()
        await until(connection, IDLE)
        await producer.commit()
    await receiver.wait_for(1)


async def test_with_notify_switched_off_jobs_are_found_by_the_poll_and_no_producer_is_asked_to_notify(
    installation: Installation, connection: Connection, receiver: Receiver
) -> None:
    installation.configure({"shop": {"url": receiver.url()}}, replica={"notify": False}, retention=QUIET)
    await installation.start()
    await until(connection, SILENT_FOR, 0.1)
    await connection.execute(INSERT, ("1",))
    await receiver.wait_for(1)
    assert await value(connection, "SELECT pg_sequence_last_value('outbox.idle')") == 0
    listeners = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE '% listen'"
    )
    assert await value(connection, listeners) == 0
    # PREPARE TRANSACTION, which a NOTIFY forbids, works.
    await connection.execute("BEGIN")
    await connection.execute(INSERT, ("2",))
    await connection.execute("PREPARE TRANSACTION 'two'")
    await connection.execute("COMMIT PREPARED 'two'")
    await receiver.wait_for(2)
