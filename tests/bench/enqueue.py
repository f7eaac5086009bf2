"""What a producer pays: for strict order, a transaction a row, and for fan-out."""

import statistics
import threading
import time
from dataclasses import dataclass
from itertools import product

import psycopg

from tests.bench.rig import Rig

PRODUCERS = 8
_TURNS = 3
_PLAIN = b"INSERT INTO outbox.job (topic, entity_key, payload, destination) VALUES ('t', %s, '{}', 'bench')"
_ORDERED = b"SELECT outbox.enqueue_ordered('t', %s, '{}', 'bench')"
_SUBSCRIBE = b"INSERT INTO outbox.destination (name, topics) SELECT 's' || n, '{t}' FROM generate_series(1, %s) n"
_ROUTED = b"INSERT INTO outbox.job (topic, payload) SELECT 't', '{}' FROM generate_series(1, %s)"
_DIRECT = b"INSERT INTO outbox.job (topic, payload, destination) SELECT 't', '{}', 'bench' FROM generate_series(1, %s)"


@dataclass(frozen=True)
class Enqueue:
    """µs of wall time a row, of plain INSERTs and of outbox.enqueue_ordered."""

    producers: int
    entities: str
    durable: bool
    plain_us: float
    ordered_us: float


@dataclass(frozen=True)
class FanOut:
    """µs of an event with so many subscribers (None: the destination was named), and of each job it became."""

    subscribers: int | None
    us_per_event: float

    @property
    def us_per_job(self) -> float:
        return self.us_per_event / (self.subscribers or 1)


def _produce_us(rig: Rig, statement: bytes, producers: int, rows: int, *, same: bool, durable: bool) -> float:
    """Wall time a row, all producers together."""
    line = threading.Barrier(producers + 1)

    def produce(n: int) -> None:
        with psycopg.connect(rig.dsn, autocommit=True, prepare_threshold=1) as connection:
            connection.execute(b"SET synchronous_commit = on" if durable else b"SET synchronous_commit = off")
            line.wait()
            for k in range(rows):
                connection.execute(statement, ("e" if same else f"e-{n}-{k}",))
            line.wait()

    threads = [threading.Thread(target=produce, args=(n,)) for n in range(producers)]
    for thread in threads:
        thread.start()
    line.wait()
    started_s = time.monotonic()
    line.wait()
    took_s = time.monotonic() - started_s
    for thread in threads:
        thread.join()
    return 1e6 * took_s / (rows * producers)


def strict_order(rig: Rig, rows: int) -> list[Enqueue]:
    """One and several producers, of one entity and of as many as rows, waiting for the disk or not."""
    found = []
    with rig.connect() as connection:
        for producers, durable, same in product((1, PRODUCERS), (False, True), (False, True)):
            rig.empty(connection)
            # By turns: what else this machine does, it does to both.
            turns = [
                [
                    _produce_us(rig, statement, producers, rows // producers, same=same, durable=durable)
                    for statement in (_PLAIN, _ORDERED)
                ]
                for _ in range(_TURNS)
            ]
            plain_us, ordered_us = (statistics.median(each) for each in zip(*turns, strict=True))
            found.append(Enqueue(producers, "same" if same else "different", durable, plain_us, ordered_us))
    return found


def fan_out(rig: Rig, events: int) -> list[FanOut]:
    """Events in one statement: to a named destination, and to 1, 10 and 100 subscribers."""
    found = []
    with rig.connect() as connection:
        for subscribers in (None, 1, 10, 100):
            rig.empty(connection)
            if subscribers is not None:
                connection.execute(_SUBSCRIBE, (subscribers,))
            connection.execute("VACUUM ANALYZE outbox.destination")
            statement = _DIRECT if subscribers is None else _ROUTED
            started_s = time.monotonic()
            connection.execute(statement, (events,))
            found.append(FanOut(subscribers, 1e6 * (time.monotonic() - started_s) / events))
    return found
