"""One history: moves drawn from a seed, each made when nothing else moves, and then an end that only claims."""

import random
from collections.abc import Awaitable, Callable
from functools import partial

from relay import rows
from relay.errors import RelayError
from relay.job import Jobs
from relay.model import Destination, RetryPolicy
from relay.store import Store
from tests.histories.places import PLACES, places
from tests.histories.replica import LOST_RACES, Record, Replica
from tests.histories.world import REPLICAS, Actor, World

_INSERT = b"INSERT INTO outbox.job (destination, topic, entity_key, payload, priority) VALUES (%s, 't', %s, '{}', %s)"
_LAPSE = b"""
UPDATE outbox.job
   SET locked_until = now() - interval '1 s'
 WHERE id = ANY (ARRAY(SELECT id FROM outbox.job WHERE destination = %s AND status = 'running' FOR UPDATE SKIP LOCKED))
   AND (id = %s OR %s)
RETURNING id, claims
"""
_DEAD = b"SELECT id FROM outbox.job WHERE destination = %s AND status = 'dead' ORDER BY id"
_IDS = b"SELECT id FROM outbox.job WHERE destination = %s ORDER BY id"


class History:
    """History `number` of a seed, in `world`; its destination has its name, so histories share the table.

    `silent` ones end without a new job, which would wake a lane that was left asleep.
    """

    def __init__(self, world: World, seed: int, number: int) -> None:
        self.rng = random.Random(f"{seed}-{number}")
        self.silent = number % 2 == 0
        self.name = f"h{number}"
        self.record = Record()
        self._world = world
        self._lanes = [f"e{n}" for n in range(self.rng.choice([1, 1, 1, 2, 3]))]
        self._sweep = self._store(world.sweeper, REPLICAS)
        self._open: list[int] = [0 for _ in world.producers]
        self._policy = Destination(
            self.name,
            "http://127.0.0.1/",
            on_dead=self.rng.choice(["block", "skip"]),
            retry=RetryPolicy(max_attempts=3),
        )
        self._replicas = [
            Replica(n, self._store(claimer, n), self._store(settler, n), self._policy, self.record, self.rng)
            for n, (claimer, settler) in enumerate(zip(world.claimers, world.settlers, strict=True))
        ]

    def _store(self, actor: Actor, number: int) -> Store:
        return Store(actor.database, locked_by=f"{self.name}-{number}", lease_s=600.0)

    async def run(self) -> None:
        """Makes the moves and comes to the end. `record` then tells them, and what they showed."""
        for _ in range(self.rng.randint(2, 4)):
            await self._insert_now()
        steps = self.rng.randint(12, 30)
        for step in range(steps):
            await self._move(producing=not self.silent or step < steps // 2)
        await self._end()

    async def _move(self, *, producing: bool) -> None:
        world = self._world
        moves: list[tuple[int, Callable[[], Awaitable[None]]]] = []
        # What the protocol is about: a settle that meets a claim.
        eager = 20 if any(actor.task for actor in world.claimers) else 5
        for replica in self._replicas:
            if world.claimers[replica.number].task is None:
                moves.append((5, partial(self._claim, replica)))
            if world.settlers[replica.number].task is None and replica.held:
                moves.append((eager, partial(self._settle, replica)))
        if any(actor.closed is not None for actor in world.actors):
            moves.append((7, self._open_one))
        if any(replica.held for replica in self._replicas):
            moves.append((3, self._lapse))
        if world.sweeper.task is None and self.record.lapsed:
            moves.append((5, self._reclaim))
        if world.operator.task is None:
            moves += [(1, self._cancel), (2, self._redrive)]
        if producing:
            moves.append((6, self._produce))
        [(_, move)] = self.rng.choices(moves, [weight for weight, _ in moves])
        await move()

    async def _begin(
        self, actor: Actor, work: Callable[[], Awaitable[None]], what: str, *statements: str, stops: float = 0.4
    ) -> None:
        stop = self.rng.choice(places(*statements)) if self.rng.random() < stops else None
        self.record.moves.append(f"{what}{'' if stop is None else f', to stop at {PLACES[stop].name}'}")

        async def guarded() -> None:
            try:
                await work()
            except LOST_RACES as conflict:
                self.record.moves.append(f"{what}: {type(conflict).__name__}")
                self.record.tally["conflicts"] += 1

        await self._world.start(actor, guarded(), stop)

    async def _claim(self, replica: Replica) -> None:
        free, width = self.rng.randint(1, 3), self.rng.randint(1, 6)

        async def work() -> None:
            await replica.claim(free, width)

        what = f"{replica.number} claims {free} of {width}"
        await self._begin(self._world.claimers[replica.number], work, what, "claim", stops=0.8)

    async def _settle(self, replica: Replica) -> None:
        outcomes = replica.outcomes()
        what = f"{replica.number} settles {[(s.job.id, s.status, s.holds_lane, s.chain) for s in outcomes]}"
        settler = self._world.settlers[replica.number]
        await self._begin(settler, lambda: replica.settle(outcomes), what, "settle", "settle_lanes")

    async def _lapse(self) -> None:
        replica = self.rng.choice([replica for replica in self._replicas if replica.held])
        job = self.rng.choice(replica.held)
        found = await (await self._world.control.execute(_LAPSE, (self.name, job.id, False))).fetchall()
        self.record.lapsed |= {(row[0], row[1]) for row in found}
        self.record.moves.append(f"the lease of {[row[0] for row in found]} lapses")
        # Half of them are forgotten, as by a process that was killed; the other results come late.
        if found and self.rng.random() < 0.5:
            replica.held.remove(job)

    async def _reclaim(self) -> None:
        async def work() -> None:
            found = await self._sweep.reclaim([self._policy], limit=10)
            self.record.tally["reclaimed"] += len(found)
            self.record.moves.append(f"has reclaimed {[each.id for each in found]}")

        await self._begin(self._world.sweeper, work, "reclaims", "reclaim", "settle_lanes")

    async def _cancel(self) -> None:
        ids = await (await self._world.control.execute(_IDS, (self.name,))).fetchall()
        job_id = self.rng.choice(ids)[0]

        async def work() -> None:
            try:
                await Jobs(self._world.operator.database, actor="history").cancel(job_id, None)
            except RelayError as refusal:
                self.record.moves.append(str(refusal))
            else:
                self.record.tally["cancelled"] += 1

        await self._begin(self._world.operator, work, f"cancels {job_id}", "settle_lanes")

    async def _redrive(self) -> None:
        ids = [row[0] for row in await (await self._world.control.execute(_DEAD, (self.name,))).fetchall()]
        force = self.rng.random() < 0.3

        async def work() -> None:
            async with self._world.operator.database.transaction() as transaction:
                asked = {"ids": ids, "force": force, "delivered": False, "actor": "history", "why": None}
                found = await transaction.fetch("redrive", asked)
                self.record.tally["redriven"] += len(found)
                lanes = rows.lane_parameters({(row[1], row[2]): False for row in found})
                await transaction.fetch("settle_lanes", {**lanes, "locked_by": "", "lease_s": 0.0})

        if ids:
            await self._begin(self._world.operator, work, f"redrives {ids}, force {force}", "settle_lanes")

    async def _produce(self) -> None:
        n = self.rng.randrange(len(self._open))
        producer = self._world.producers[n]
        if self._open[n] and self.rng.random() < 0.6:
            await self._finish_producer(n, commits=self.rng.random() < 0.85)
        else:
            lane = self.rng.choice(self._lanes)
            await producer.execute(_INSERT, (self.name, lane, self.rng.choice([1, 1, 2])))
            self._open[n] += 1
            self.record.moves.append(f"producer {n} inserts into {lane}")
            if self.rng.random() < 0.5:
                await self._finish_producer(n, commits=True)

    async def _finish_producer(self, n: int, *, commits: bool) -> None:
        producer = self._world.producers[n]
        await (producer.commit() if commits else producer.rollback())
        self._open[n] = 0
        self.record.moves.append(f"producer {n} {'commits' if commits else 'rolls back'}")
        await self._world.quiet()

    async def _insert_now(self) -> None:
        lane = self.rng.choice(self._lanes)
        await self._world.control.execute(_INSERT, (self.name, lane, self.rng.choice([1, 1, 2])))

    async def _open_one(self) -> None:
        actor = self.rng.choice([actor for actor in self._world.actors if actor.closed is not None])
        self.record.moves.append(f"actor {actor.number} may go on")
        await self._world.open(actor)

    async def _end(self) -> None:
        """Ends what runs, as its own settle or reclaim does, and then claims until nothing comes any more."""
        for n in range(len(self._open)):
            await self._finish_producer(n, commits=not self.silent)
        await self._world.join()
        if not self.silent:
            await self._insert_now()
        self.record.moves.append("the end")
        for replica in self._replicas:
            await replica.finish()
        await self._world.control.execute(_LAPSE, (self.name, 0, True))
        while await self._sweep.reclaim([self._policy], limit=10):
            pass
        while any([await replica.claim(64, 64) for replica in self._replicas]):
            for replica in self._replicas:
                await replica.finish()
