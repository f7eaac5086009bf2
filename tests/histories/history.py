"""One history: moves drawn from a seed, each made when nothing else moves, and then an end that only claims."""

import random
from collections.abc import Awaitable, Callable

from psycopg import errors

from relay.database import CONFLICTS
from relay.errors import RelayError
from relay.job import Jobs
from relay.model import Destination, Job, RetryPolicy, Settlement
from relay.rows import Range
from relay.store import Store
from tests.histories.places import PLACES, places
from tests.histories.world import REPLICAS, Actor, World

# The broken variant meets one more: its old snapshot cannot lock what has changed since.
_CONFLICTS = (*CONFLICTS, errors.SerializationFailure)
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
        self.faults: list[str] = []
        self.moves: list[str] = []
        self._world = world
        self._lanes = [f"e{n}" for n in range(self.rng.choice([1, 1, 2, 3]))]
        self._claims = [self._store(actor, n) for n, actor in enumerate(world.claimers)]
        self._settles = [self._store(actor, n) for n, actor in enumerate(world.settlers)]
        self._sweep = self._store(world.sweeper, REPLICAS)
        self._held: list[list[Job]] = [[] for _ in range(REPLICAS)]
        self._lapsed: set[tuple[int, int]] = set()
        self._open: list[int] = [0 for _ in world.producers]
        self._policy = Destination(
            self.name,
            "http://127.0.0.1/",
            on_dead=self.rng.choice(["block", "skip"]),
            retry=RetryPolicy(max_attempts=3),
        )

    def _store(self, actor: Actor, number: int) -> Store:
        return Store(actor.database, locked_by=f"{self.name}-{number}", lease_s=600.0)

    async def run(self) -> None:
        """Makes the moves and comes to the end. `faults` then holds what the moves themselves showed."""
        for _ in range(self.rng.randint(1, 4)):
            await self._insert_now()
        steps = self.rng.randint(12, 30)
        for step in range(steps):
            await self._move(producing=not self.silent or step < 2 * steps // 3)
        await self._end()

    async def _move(self, *, producing: bool) -> None:
        world = self._world
        moves: list[tuple[int, Callable[[], Awaitable[None]]]] = []
        # What the protocol is about: a settle that meets a claim.
        eager = 14 if any(actor.task for actor in world.claimers) else 5
        for n in range(REPLICAS):
            if world.claimers[n].task is None:
                moves.append((5, lambda n=n: self._claim(n)))  # type: ignore[misc]
            if world.settlers[n].task is None and self._held[n]:
                moves.append((eager, lambda n=n: self._settle(n)))  # type: ignore[misc]
        if any(actor.closed is not None for actor in world.actors):
            moves.append((7, self._open_one))
        if any(self._held):
            moves.append((2, self._lapse))
        if world.sweeper.task is None and self._lapsed:
            moves.append((3, self._reclaim))
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
        self.moves.append(f"{what}{'' if stop is None else f', to stop at {PLACES[stop].name}'}")

        async def guarded() -> None:
            try:
                await work()
            except _CONFLICTS as conflict:
                self.moves.append(f"{what}: {type(conflict).__name__}")
                self._world.tally["conflicts"] += 1

        await self._world.start(actor, guarded(), stop)

    async def _claim(self, n: int) -> None:
        free, width = self.rng.randint(1, 3), self.rng.randint(1, 5)

        async def work() -> None:
            self._world.tally["claims"] += 1
            await self._take(n, free, width)

        await self._begin(self._world.claimers[n], work, f"{n} claims {free} of {width}", "claim", stops=0.8)

    async def _take(self, n: int, free: int, width: int) -> bool:
        ranges = [Range(self.name, priority, free, width) for priority in (0, 1, 2, 3)]
        jobs = (await self._claims[n].claim(ranges, payload_bytes=1 << 30)).jobs
        self._held[n] += jobs
        self.moves.append(f"{n} has claimed {[job.id for job in jobs]}")
        return bool(jobs)

    async def _settle(self, n: int) -> None:
        batch = self.rng.sample(self._held[n], self.rng.randint(1, len(self._held[n])))
        outcomes = [self._outcome(job) for job in batch]
        what = f"{n} settles {[(s.job.id, s.status, s.holds_lane, s.chain) for s in outcomes]}"
        self._held[n] = [job for job in self._held[n] if job not in batch]
        await self._begin(self._world.settlers[n], lambda: self._write(n, outcomes), what, "settle", "settle_lanes")

    async def _write(self, n: int, outcomes: list[Settlement]) -> None:
        try:
            settled = await self._settles[n].settle(outcomes)
        except _CONFLICTS:
            self._held[n] += [s.job for s in outcomes]
            raise
        self._held[n] += settled.started
        self._world.tally["settles"] += 1
        self._world.tally["chained"] += len(settled.started)
        self.moves.append(f"{n} has settled {sorted(settled.ids)}, started {[job.id for job in settled.started]}")
        for job in (s.job for s in outcomes if s.job.id not in settled.ids):
            self._world.tally["late results"] += 1
            if (job.id, job.claims) not in self._lapsed:
                self.faults.append(f"the result of job {job.id} was refused, and its lease had not lapsed")

    def _outcome(self, job: Job) -> Settlement:
        chance, chain = self.rng.random(), self.rng.random() < 0.5
        if chance < 0.14:
            return Settlement(job, "pending")
        if chance < 0.22:
            return Settlement(job, "pending", charged=False)
        if chance < 0.34:
            blocks = self._policy.on_dead == "block"
            return Settlement(job, "dead", holds_lane=blocks, chain=chain and not blocks)
        return Settlement(job, "done", chain=chain)

    async def _lapse(self) -> None:
        n = self.rng.choice([n for n in range(REPLICAS) if self._held[n]])
        job = self.rng.choice(self._held[n])
        rows = await (await self._world.control.execute(_LAPSE, (self.name, job.id, False))).fetchall()
        self._lapsed |= {(row[0], row[1]) for row in rows}
        self.moves.append(f"the lease of {[row[0] for row in rows]} lapses")
        # Half of them are forgotten, as by a process that was killed; the other results come late.
        if rows and self.rng.random() < 0.5:
            self._held[n].remove(job)

    async def _reclaim(self) -> None:
        async def work() -> None:
            found = await self._sweep.reclaim([self._policy], limit=10)
            self._world.tally["reclaimed"] += len(found)
            self.moves.append(f"has reclaimed {[each.id for each in found]}")

        await self._begin(self._world.sweeper, work, "reclaims", "reclaim", "settle_lanes")

    async def _cancel(self) -> None:
        ids = await (await self._world.control.execute(_IDS, (self.name,))).fetchall()
        job_id = self.rng.choice(ids)[0]

        async def work() -> None:
            try:
                await Jobs(self._world.operator.database, actor="history").cancel(job_id, None)
            except RelayError as refusal:
                self.moves.append(str(refusal))
            else:
                self._world.tally["cancelled"] += 1

        await self._begin(self._world.operator, work, f"cancels {job_id}", "settle_lanes")

    async def _redrive(self) -> None:
        ids = [row[0] for row in await (await self._world.control.execute(_DEAD, (self.name,))).fetchall()]
        force = self.rng.random() < 0.3

        async def work() -> None:
            async with self._world.operator.database.transaction() as transaction:
                found = await transaction.fetch("redrive", {"ids": ids, "force": force})
                lanes = sorted({(row[1], row[2]) for row in found})
                self._world.tally["redriven"] += len(found)
                await transaction.fetch(
                    "settle_lanes",
                    {
                        "destinations": [destination for destination, _ in lanes],
                        "entity_keys": [entity_key for _, entity_key in lanes],
                        "chains": [False for _ in lanes],
                        "locked_by": "history",
                        "lease_s": 0.0,
                    },
                )

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
            self.moves.append(f"producer {n} inserts into {lane}")
            if self.rng.random() < 0.5:
                await self._finish_producer(n, commits=True)

    async def _finish_producer(self, n: int, *, commits: bool) -> None:
        producer = self._world.producers[n]
        await (producer.commit() if commits else producer.rollback())
        self._open[n] = 0
        self.moves.append(f"producer {n} {'commits' if commits else 'rolls back'}")
        await self._world.quiet()

    async def _insert_now(self) -> None:
        lane = self.rng.choice(self._lanes)
        await self._world.control.execute(_INSERT, (self.name, lane, self.rng.choice([1, 1, 2])))

    async def _open_one(self) -> None:
        actor = self.rng.choice([actor for actor in self._world.actors if actor.closed is not None])
        self.moves.append(f"actor {actor.number} may go on")
        await self._world.open(actor)

    async def _end(self) -> None:
        """Ends what runs, as its own settle or reclaim does, and then claims until nothing comes any more."""
        for n in range(len(self._open)):
            await self._finish_producer(n, commits=not self.silent)
        await self._world.join()
        if not self.silent:
            await self._insert_now()
        self.moves.append("the end")
        for n in range(REPLICAS):
            await self._finish(n)
        await self._world.control.execute(_LAPSE, (self.name, 0, True))
        while await self._sweep.reclaim([self._policy], limit=10):
            pass
        while any([await self._take(n, 64, 64) for n in range(REPLICAS)]):
            for n in range(REPLICAS):
                await self._finish(n)

    async def _finish(self, n: int) -> None:
        while self._held[n]:
            held, self._held[n] = self._held[n], []
            await self._write(n, [Settlement(job, "done") for job in held])
