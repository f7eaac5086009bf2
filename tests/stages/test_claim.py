"""When the claimer looks, how far, and what it tells producers."""

import asyncio
import math
import random
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import psycopg
import pytest

from relay.claim import Claimer
from relay.model import Destination, Job, Room
from relay.search import WIDEST
from relay.store import Store
from tests.conftest import Connection
from tests.stages.stage import MIB, insert, insert_retries, statuses

POLL_S = 600.0


@dataclass
class Desk:
    """A claimer whose jobs go nowhere; `free` is how many more it may take."""

    store: Store
    free: int = 8
    budget_bytes: int = 64 * MIB
    mail_free: int = 0
    retries_free: int = 1_000
    held: dict[str, int] = field(default_factory=dict)
    jobs: list[Job] = field(default_factory=list)
    more: dict[str, bool] = field(default_factory=dict)
    names: Sequence[str] = ("shop", "mail")
    asked: list[str] = field(default_factory=list)
    woken: int = 0
    scouted: int = 0

    def __post_init__(self) -> None:
        self.claimer = Claimer(
            self.store,
            [Destination(name, "http://127.0.0.1/") for name in self.names],
            wanted=self._wanted,
            bytes_held=lambda name: self.held.get(name, 0) if name else sum(self.held.values()),
            payload_budget_bytes=self.budget_bytes,
            on_claimed=self._take,
            note=self._note,
            wake=self._wake,
            scout=self._scout,
            poll_s=POLL_S,
            notify=True,
            rng=random.Random(1),
        )

    def _wanted(self, name: str) -> Room:
        self.asked.append(name)
        free = self.free if name == "shop" else self.mail_free
        return Room(free, min(free, self.retries_free))

    def _take(self, jobs: Sequence[Job], _since_s: float) -> None:
        self.jobs += jobs
        self.free -= len(jobs)

    def _note(self, name: str, *, more: bool, retries: bool) -> None:
        self.more[name] = more or retries

    def _wake(self) -> None:
        self.woken += 1

    def _scout(self) -> None:
        self.scouted += 1

    async def scout(self) -> None:
        """What the scout would tell it, and quickly."""
        self.claimer.found(await self.store.first_due(), took_s=0.0, pause_s=POLL_S)

    async def look(self) -> list[Job]:
        """One step, at once; the jobs it brought."""
        before = len(self.jobs)
        self.claimer.ring("shop")
        await self.claimer.step()
        return self.jobs[before:]


@pytest.fixture
def desk(store: Store) -> Desk:
    """A claimer on the emptied database."""
    return Desk(store)


async def idle(connection: Connection) -> int:
    """The flag that the producers' trigger reads."""
    cursor = await connection.execute("SELECT pg_sequence_last_value('outbox.idle')")
    [[flag]] = await cursor.fetchall()
    return int(flag)


async def waits(connection: Connection) -> bool:
    """Whether somebody waits for a lock."""
    cursor = await connection.execute("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)")
    [[found]] = await cursor.fetchall()
    return bool(found)


async def test_it_takes_as_many_jobs_as_there_is_room_for_and_says_whether_more_may_be_due(
    desk: Desk, connection: Connection
) -> None:
    await insert(connection, 10)
    assert len(await desk.look()) == 8
    assert desk.more == {"shop": True}
    desk.free = 8
    assert len(await desk.look()) == 2
    assert desk.more == {"shop": False}
    assert await statuses(connection) == ["running"] * 10


async def test_of_what_it_takes_no_more_are_retries_than_may_be_and_new_jobs_are_found_behind_all_of_them(
    desk: Desk, connection: Connection
) -> None:
    desk.free, desk.retries_free = 8, 6
    await insert_retries(connection, 5_000)
    await insert(connection, 1)
    assert sorted(each.is_retry for each in await desk.look()) == [False] + [True] * 6
    # The one slot that is left is for first attempts, and is asked for as usual; the dispatcher rings for the others.
    assert desk.more == {"shop": True}
    assert desk.claimer._views["shop"].pause_s == pytest.approx(0.005)
    desk.retries_free = 0
    assert await desk.look() == []
    await insert(connection, 1)
    assert [each.is_retry for each in await desk.look()] == [False]


async def test_where_one_job_is_wanted_at_a_time_first_attempts_and_retries_have_their_turns(
    desk: Desk, connection: Connection
) -> None:
    await insert_retries(connection, 50)
    await insert(connection, 50)
    kinds = []
    for _ in range(30):
        desk.free = 1
        kinds += [each.is_retry for each in await desk.look()]
    assert kinds == [False, False, True] * 10


async def test_where_one_kind_has_nothing_due_the_other_one_takes_every_turn(
    desk: Desk, connection: Connection
) -> None:
    await insert_retries(connection, 20)
    assert [each.is_retry for each in await desk.look()] == [True] * 8
    await insert(connection, 20)
    desk.free, desk.retries_free = 8, 0
    assert [each.is_retry for each in await desk.look()] == [False] * 8


async def test_a_lane_whose_holder_is_a_retry_counts_as_one_whichever_of_its_jobs_rang(
    desk: Desk, connection: Connection
) -> None:
    await insert_retries(connection, 4)
    await connection.execute("UPDATE outbox.job SET entity_key = 'lane-' || id")
    await connection.execute(
        "INSERT INTO outbox.job (topic, destination, entity_key, payload)"
        " SELECT 't', 'shop', 'lane-' || id, '{}' FROM outbox.job"
    )
    desk.free, desk.retries_free = 8, 3
    assert [each.id for each in await desk.look()] == [1, 2, 3]
    assert await statuses(connection) == ["running"] * 3 + ["pending"] + ["blocked"] * 4


async def test_a_burst_of_one_entity_is_put_aside_in_a_few_steps_that_look_twice_as_far_each_time(
    desk: Desk, connection: Connection
) -> None:
    burst = 10_000
    await insert(connection, burst, "hot")
    await insert(connection, desk.free, "fresh-{n}")
    steps = 0
    while desk.free:
        # Every step asks for the next one at once.
        assert await desk.claimer.step() == 0.0 or not desk.free
        steps += 1
    assert [each.entity_key for each in desk.jobs] == ["hot", *(f"fresh-{n}" for n in range(1, 8))]
    assert steps <= math.log2(WIDEST / 8) + burst / WIDEST + 1
    # From now on the burst costs nothing.
    desk.free = 8
    assert [each.entity_key for each in await desk.look()] == ["fresh-8"]
    assert set((await statuses(connection))[1:burst]) == {"blocked"}


@pytest.fixture
async def held_lane(connection: Connection, database: str) -> AsyncIterator[None]:
    """Five hundred jobs of an entity whose first job somebody's session holds, and one job behind them."""
    await insert(connection, 500, "held")
    await insert(connection, 1)
    async with await psycopg.AsyncConnection.connect(database) as foreign:
        await foreign.execute("SELECT FROM outbox.job WHERE id = 1 FOR UPDATE")
        yield


@pytest.mark.usefixtures("held_lane")
async def test_a_lane_whose_head_somebody_holds_does_not_hide_what_is_due_behind_it(desk: Desk) -> None:
    for _ in range(10):
        await desk.claimer.step()
    assert [each.id for each in desk.jobs] == [501]


async def test_payloads_beyond_the_budget_stay_in_the_table(store: Store, connection: Connection) -> None:
    desk = Desk(store, budget_bytes=4 * MIB)
    await connection.execute(
        "INSERT INTO outbox.job (topic, destination, body, content_type)"
        " SELECT 't', 'shop', decode(repeat('00', 900000), 'hex'), 'x/y' FROM generate_series(1, 4)"
    )
    # One destination alone gets half: the rest is for whoever asks next.
    assert [each.id for each in await desk.look()] == [1, 2]


async def test_a_destination_that_holds_the_whole_budget_keeps_no_other_waiting(
    store: Store, connection: Connection
) -> None:
    desk = Desk(store, budget_bytes=4 * MIB, mail_free=8, held={"shop": 4 * MIB})
    await connection.execute(
        "INSERT INTO outbox.job (topic, destination, payload)"
        " SELECT 't', name, '{}' FROM unnest('{shop,mail}'::text[]) name"
    )
    await desk.look()
    desk.claimer.ring("mail")
    await desk.claimer.step()
    assert [each.destination for each in desk.jobs] == ["mail"]


async def test_the_least_urgent_jobs_of_each_destination_have_their_turn(store: Store, connection: Connection) -> None:
    """Fails when the turns are counted for all together: of two that are asked in turn, one never has its eighth."""
    desk = Desk(store, free=1, mail_free=1)
    await connection.execute(
        "INSERT INTO outbox.job (topic, destination, payload, priority)"
        " SELECT 't', name, '{}', priority FROM unnest('{shop,mail}'::text[]) name, unnest('{0,3}'::int[]) priority,"
        " generate_series(1, 20)"
    )
    for _ in range(16):
        for name in ("shop", "mail"):
            desk.free, desk.mail_free = int(name == "shop"), int(name == "mail")
            desk.claimer.ring(name)
            await desk.claimer.step()
    row = await (
        await connection.execute(
            "SELECT count(DISTINCT destination) FROM outbox.job WHERE priority = 3 AND status = 'running'"
        )
    ).fetchone()
    assert row == (2,)


async def test_after_a_ring_the_pause_doubles_while_nothing_comes_until_the_next_one(desk: Desk) -> None:
    pauses = []
    desk.claimer.ring("shop")
    for _ in range(6):
        view = desk.claimer._views["shop"]
        view.look_s = 0.0
        await desk.claimer.step()
        pauses.append(view.pause_s)
    assert pauses == [pytest.approx(0.010 * 2**n) for n in range(6)]
    desk.claimer.ring("shop")
    assert desk.woken == 2
    await desk.claimer.step()
    assert view.pause_s == pytest.approx(0.010)


async def test_a_ring_during_a_claim_that_may_not_have_seen_its_job_is_answered_by_the_next_at_once(
    desk: Desk, connection: Connection
) -> None:
    async with connection.transaction():
        await connection.execute("LOCK TABLE outbox.job IN ACCESS EXCLUSIVE MODE")
        desk.claimer.ring("shop")
        step = asyncio.create_task(desk.claimer.step())
        while not await waits(connection):
            await asyncio.sleep(0)
        desk.claimer.heard("shop")
    assert await step == desk.claimer._views["shop"].look_s == 0.0
    await desk.claimer.step()
    assert desk.claimer._views["shop"].look_s > 0.0


async def test_one_claim_is_for_fifty_destinations_at_most_and_those_that_were_rung_are_first(store: Store) -> None:
    names = [f"{number:03}" for number in range(120)]
    desk = Desk(store, names=names, mail_free=1)
    for asked in (50, 50, 20, 0):
        before = len(desk.asked)
        await desk.claimer.step()
        assert len(desk.asked) == before + asked
    assert set(desk.asked) == set(names)
    desk.claimer.ring("119")
    desk.asked.clear()
    await desk.claimer.step()
    assert desk.asked[0] == "119"


async def test_a_ring_for_a_destination_of_somebody_else_is_ignored(desk: Desk, connection: Connection) -> None:
    await desk.look()
    view = desk.claimer._views["shop"]
    before_s = view.look_s
    desk.claimer.ring("unknown")
    assert view.look_s == before_s
    assert await statuses(connection) == []


async def test_when_notifications_may_have_been_missed_the_scout_looks(desk: Desk) -> None:
    desk.claimer.heard("")
    assert desk.scouted == 1


async def test_producers_are_asked_for_a_notify_once_nothing_is_found_and_not_before(
    desk: Desk, connection: Connection
) -> None:
    await insert(connection, 1)
    assert len(await desk.look()) == 1
    assert await idle(connection) == 0
    assert await desk.look() == []
    assert await idle(connection) == 1


async def test_producers_that_notify_too_often_are_told_to_stop_until_nothing_is_found(
    desk: Desk, connection: Connection
) -> None:
    await desk.look()
    assert await idle(connection) == 1
    await insert(connection, 1)
    for _ in range(1_000):
        desk.claimer.heard("shop")
    assert len(await desk.look()) == 1
    assert await idle(connection) == 0
    await desk.look()
    assert await idle(connection) == 1


async def test_a_few_notifies_do_not_end_the_asking(desk: Desk, connection: Connection) -> None:
    await desk.look()
    await insert(connection, 1)
    desk.claimer.heard("shop")
    assert len(await desk.look()) == 1
    assert await idle(connection) == 1


async def exhaust(desk: Desk) -> None:
    """Look until nothing is to be looked at any more."""
    for name, view in desk.claimer._views.items():
        while view.look_s < math.inf:
            view.look_s, desk.mail_free = 0.0, 8
            await desk.claimer.step()
            assert not desk.jobs, name


async def commit_late(connection: Connection) -> None:
    """Insert a job whose due time lies a minute back, as one of a long transaction does."""
    await connection.execute("SET session_replication_role = replica")
    await connection.execute(
        "INSERT INTO outbox.job (topic, destination, payload, run_at, created_at)"
        " VALUES ('t', 'shop', '{}', now() - interval '1 minute', now() - interval '1 minute')"
    )
    await connection.execute("SET session_replication_role = origin")


async def test_while_claims_are_cheap_a_late_commit_is_found_by_the_next_look(
    desk: Desk, connection: Connection
) -> None:
    await insert(connection, 1)
    await desk.look()
    # However slow this machine was just now.
    desk.claimer._slow_until_s = 0.0
    await commit_late(connection)
    assert [each.id for each in await desk.look()] == [2]


async def test_after_a_slow_claim_the_search_starts_where_earlier_ones_came_to_until_the_scout_sees_a_late_commit(
    desk: Desk, connection: Connection, database: str
) -> None:
    await insert(connection, 1)
    async with await psycopg.AsyncConnection.connect(database) as foreign:
        await foreign.execute("LOCK TABLE outbox.destination IN ACCESS EXCLUSIVE MODE")
        claim = asyncio.create_task(desk.look())
        waits = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        while (await (await foreign.execute(waits)).fetchone()) == (0,):
            pass
        # Long enough to count as slow.
        await foreign.execute("SELECT pg_sleep(0.05)")
        await foreign.commit()
    assert [each.id for each in await claim] == [1]

    await commit_late(connection)
    await insert(connection, 1)
    assert [each.id for each in await desk.look()] == [3]
    await desk.scout()
    assert [each.id for each in await desk.look()] == [2]


async def test_a_slow_look_of_the_scout_lets_claims_begin_behind_what_was_delivered_until_after_its_next(
    desk: Desk, connection: Connection
) -> None:
    await insert(connection, 1)
    await desk.look()
    desk.claimer._slow_until_s = 0.0
    desk.claimer.found([], took_s=0.5, pause_s=10.0)
    assert desk.claimer._slow_until_s > time.monotonic() + 10.0
    await commit_late(connection)
    assert await desk.look() == []


async def test_a_destination_where_nothing_comes_is_not_asked_again_until_the_scout_finds_something(
    desk: Desk, connection: Connection
) -> None:
    await exhaust(desk)
    desk.asked.clear()
    await desk.claimer.step()
    assert desk.asked == []
    await desk.scout()
    assert desk.claimer._views["shop"].look_s == math.inf
    await insert(connection, 1)
    woken = desk.woken
    await desk.scout()
    assert desk.woken == woken + 1
    await desk.claimer.step()
    assert [each.id for each in desk.jobs] == [1]


async def test_the_scout_makes_no_destination_ask_that_waits_for_room(desk: Desk, connection: Connection) -> None:
    await insert(connection, 10)
    assert len(await desk.look()) == 8
    desk.free = 1
    before_s = desk.claimer._views["shop"].look_s
    await desk.scout()
    assert desk.claimer._views["shop"].look_s == before_s


async def test_while_producers_save_their_notify_a_destination_is_left_to_the_scout_after_50_ms(
    desk: Desk, connection: Connection
) -> None:
    desk.mail_free = 1
    await desk.look()
    assert not desk.claimer.busy
    for _ in range(1_000):
        desk.claimer.heard("shop")
    await insert(connection, 1)
    await desk.look()
    assert desk.claimer.busy
    assert desk.scouted == 1
    for _ in range(4):
        await insert(connection, 1)
        desk.claimer._views["mail"].look_s = 0.0
        await desk.look()
    assert desk.claimer._views["mail"].look_s == math.inf


async def test_an_idle_claimer_with_nothing_to_ask_repeats_that_it_wants_a_notify(
    desk: Desk, connection: Connection
) -> None:
    await exhaust(desk)
    await connection.execute("SELECT setval('outbox.idle', 0)")
    assert 0.0 < await desk.claimer.step() <= 5.0
    assert await idle(connection) == 0
    desk.claimer._told_s -= 5.0
    await desk.claimer.step()
    assert await idle(connection) == 1
