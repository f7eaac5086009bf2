"""When the scout looks, and what it tells."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import psycopg
import pytest

from relay.rows import FirstDue
from relay.rules.rest import Rest
from relay.scout import Scout
from relay.store import Store
from tests.conftest import Connection
from tests.stages.stage import insert, insert_retries


@dataclass
class Camp:
    """A scout that everybody may ask what it told last."""

    store: Store
    busy: bool = False
    first_due: Sequence[FirstDue] = ()
    took_s: float = 0.0
    pauses_s: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scout = Scout(self.store, found=self._found, busy=lambda: self.busy, poll_s=1.0, rng=random.Random(1))

    def _found(self, first_due: Sequence[FirstDue], *, took_s: float, pause_s: float) -> None:
        self.first_due, self.took_s = first_due, took_s
        self.pauses_s.append(pause_s)

    async def look(self) -> list[tuple[str, int, bool, int]]:
        """One step; each range that was found, and the id before its first row."""
        await self.scout.step()
        return [(each.destination, each.priority, each.retries, each.before.id) for each in self.first_due]


@pytest.fixture
def camp(store: Store) -> Camp:
    """A scout on the emptied database."""
    return Camp(store)


async def test_it_finds_the_first_due_row_of_every_range_that_has_one(camp: Camp, connection: Connection) -> None:
    assert await camp.look() == []
    await insert(connection, 5)
    await insert_retries(connection, 5)
    await connection.execute(
        "INSERT INTO outbox.job (topic, destination, payload, priority)"
        " SELECT 't', name, '{}', priority FROM unnest('{mail,post}'::text[]) name, unnest('{0,3}'::int[]) priority"
    )
    assert await camp.look() == [
        ("mail", 0, False, 10), ("mail", 3, False, 11), ("post", 0, False, 12), ("post", 3, False, 13),
        ("shop", 1, False, 0), ("shop", 1, True, 5),
    ]  # fmt: skip


async def test_it_finds_neither_what_is_due_later_nor_what_is_paused(camp: Camp, connection: Connection) -> None:
    await connection.execute(
        "INSERT INTO outbox.job (topic, destination, payload, run_at) VALUES ('t', 'shop', '{}', now() + '1 h')"
    )
    await connection.execute("INSERT INTO outbox.job (topic, destination, payload) VALUES ('t', 'mail', '{}')")
    await connection.execute("INSERT INTO outbox.destination (name, topics) VALUES ('mail', '{}')")
    assert [name for name, *_ in await camp.look()] == ["mail"]
    await connection.execute("UPDATE outbox.destination SET paused_at = now(), paused_why = 'x' WHERE name = 'mail'")
    assert await camp.look() == []


async def test_it_looks_every_50_ms_while_the_claimer_is_busy_and_ever_more_rarely_up_to_the_poll_afterwards(
    camp: Camp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Rest, "after", lambda _self, _took_s: 0.0)
    camp.busy = True
    for _ in range(3):
        await camp.scout.step()
    camp.busy = False
    for _ in range(7):
        await camp.scout.step()
    expected = [0.05] * 3 + [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]
    assert camp.pauses_s == [pytest.approx(each, rel=0.11) for each in expected]


async def look_slowly(camp: Camp, database: str) -> float:
    """One look that takes at least 50 ms; the pause after it."""
    async with await psycopg.AsyncConnection.connect(database) as foreign:
        await foreign.execute("LOCK TABLE outbox.job IN ACCESS EXCLUSIVE MODE")
        look = asyncio.create_task(camp.scout.step())
        while (await (await foreign.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")).fetchone()) == (0,):
            pass
        await foreign.execute("SELECT pg_sleep(0.05)")
        await foreign.commit()
    return await look


async def test_after_the_second_slow_look_in_a_row_it_rests_twenty_times_as_long_as_the_shorter_one(
    camp: Camp, database: str
) -> None:
    camp.busy = True
    await camp.scout.step()
    fast_s = camp.took_s
    assert await look_slowly(camp, database) == pytest.approx(max(0.05, 20 * fast_s), rel=0.11)
    slow_s = camp.took_s
    assert await look_slowly(camp, database) == camp.pauses_s[2] == 20 * min(slow_s, camp.took_s) > 1.0
