"""A collector that is in trouble is no trouble of anybody else's."""

import time

from tests.conftest import Connection
from tests.receiver import Receiver
from tests.service.replica import Installation, Replica
from tests.traces.collector import Collector

JOBS = 300
# So few that most spans find the queue full.
QUEUE = {"OTEL_BSP_MAX_QUEUE_SIZE": "32", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "16"}
INSERT = "INSERT INTO outbox.job (destination, topic, payload) SELECT 'shop', 't', '{}' FROM generate_series(1, %s)"


async def deliver(installation: Installation, connection: Connection, receiver: Receiver) -> Replica:
    """A replica that has delivered all of its jobs, once each."""
    installation.environment |= QUEUE
    installation.configure({"shop": {"url": receiver.url()}})
    await connection.execute(INSERT, (JOBS,))
    replica = await installation.start()
    arrivals = await receiver.wait_for(JOBS)
    assert len({arrival.sequence for arrival in arrivals}) == JOBS
    return replica


async def test_a_collector_that_hangs_holds_up_no_delivery_and_the_end_of_a_replica_not_for_long(
    traced: Installation, collector: Collector, receiver: Receiver, connection: Connection
) -> None:
    collector.hangs = True
    # It would be waited for much longer than a test may run.
    traced.environment["OTEL_EXPORTER_OTLP_TIMEOUT"] = "600"
    replica = await deliver(traced, connection, receiver)
    # The exporter hangs from the first batch on, so all that came later was delivered past it.
    assert len(collector.headers) == 1
    began_s = time.monotonic()
    assert await replica.stop() == 0
    # Of 600 s.
    assert time.monotonic() - began_s < 30
    left = await connection.execute("SELECT count(*) FROM outbox.job WHERE status <> 'done'")
    assert await left.fetchone() == (0,)


async def test_a_collector_that_is_gone_is_said_once_and_so_is_its_return(
    traced: Installation, collector: Collector, receiver: Receiver, connection: Connection
) -> None:
    collector.status = 400
    replica = await deliver(traced, connection, receiver)
    gone = await replica.event("traces_not_exported")
    assert "400" in gone["why"]
    assert len(collector.headers) > 1
    collector.status = 200
    await connection.execute(INSERT, (1,))
    await replica.event("traces_exported_again")
    assert len(replica.logged("traces_not_exported")) == 1
    assert await replica.stop() == 0
