"""How retention goes on from one batch to the next."""

import random

import psycopg
import pytest

from relay import retain
from relay.retain import Retainer
from relay.store import Store
from tests.conftest import Connection

OLD = """
INSERT INTO outbox.job (destination, topic, payload, entity_key, status, holds_lane, finished_at)
SELECT 'a', 't', '{}', CASE %(status)s WHEN 'dead' THEN 'e' || n END, %(status)s, %(status)s = 'dead',
       now() - n * interval '1 h'
  FROM generate_series(1, %(count)s) AS n
"""
SWEEP_S = 100.0


class Rung(list[str]):
    """The destinations whose claims were asked for."""


@pytest.fixture
def rung() -> Rung:
    """Nothing yet."""
    return Rung()


def retainer(store: Store, rung: Rung, *, dead_s: float | None = None, batch: int = 3) -> Retainer:
    """Everything is past its age, a batch of three at a time."""
    return Retainer(
        store, done_s=0.0, attempt_s=0.0, dead_s=dead_s, batch=batch, sweep_s=SWEEP_S,
        ring=rung.append, rng=random.Random(1),
    )  # fmt: skip


async def left(connection: Connection) -> list[int]:
    """The ids of the jobs that are left; the higher, the older."""
    return [row[0] for row in await (await connection.execute("SELECT id FROM outbox.job ORDER BY id")).fetchall()]


async def test_a_full_batch_is_followed_by_the_next_one_soon_and_the_last_by_a_pause(
    store: Store, rung: Rung, connection: Connection
) -> None:
    await connection.execute(OLD, {"status": "done", "count": 5})
    retaining = retainer(store, rung)
    assert await retaining.step() < 1.0
    assert await left(connection) == [1, 2]
    assert await retaining.step() >= 0.8 * SWEEP_S
    assert await left(connection) == []


@pytest.mark.parametrize("full_look_s", [600.0, 0.0])
async def test_what_was_locked_when_its_turn_came_is_deleted_at_the_next_full_look(
    store: Store, rung: Rung, connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch, full_look_s: float
) -> None:
    monkeypatch.setattr(retain, "_FULL_LOOK_S", full_look_s)
    await connection.execute(OLD, {"status": "done", "count": 5})
    retaining = retainer(store, rung)
    async with await psycopg.AsyncConnection.connect(database) as somebody:
        await somebody.execute("SELECT FROM outbox.job WHERE id = 5 FOR UPDATE")
        await retaining.step()
        assert await left(connection) == [1, 5]
    await retaining.step()
    assert await left(connection) == ([] if full_look_s == 0.0 else [5])


async def test_dead_letters_past_their_age_are_told_of_in_numbers_and_their_destination_is_rung(
    store: Store, rung: Rung, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    await connection.execute(OLD, {"status": "dead", "count": 5})
    retaining = retainer(store, rung, dead_s=2.5 * 3600)
    assert await retaining.step() < 1.0
    await retaining.step()
    assert await left(connection) == [1, 2]
    [told] = [record for record in caplog.records if record.getMessage() == "dead_letters_deleted"]
    assert told.__dict__["fields"]["jobs"] == 3
    assert rung == ["a"]


async def test_dead_letters_are_kept_where_no_age_is_set(store: Store, rung: Rung, connection: Connection) -> None:
    await connection.execute(OLD, {"status": "dead", "count": 5})
    await retainer(store, rung).step()
    assert len(await left(connection)) == 5
