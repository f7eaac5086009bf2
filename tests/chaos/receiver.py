"""The recording receiver: answers by a seeded rule, and remembers every arrival with its times."""

import asyncio
import hashlib
import random
import time
from collections import Counter
from dataclasses import dataclass

from aiohttp import web

# A poisoned job fails this often for each destination: its whole budget, and no more after a redrive.
POISON_FAILS = 6
# Recorded for an answer that comes after the sender's deadline, whatever it says: to the sender it is a failure.
LATE = 299


@dataclass
class Arrival:
    """One request as the receiver saw it; times are monotonic seconds, `status` None while it is unanswered."""

    destination: str
    sequence: int
    entity_key: str | None
    key: str
    body: bytes
    replica: str
    redrive: bool
    attempt: int
    began_s: float
    ended_s: float | None = None
    status: int | None = None


class Receiver:
    """Serves one path for each destination on 127.0.0.1."""

    def __init__(self, seed: int, hang_s: float) -> None:
        self.arrivals: list[Arrival] = []
        self.port = 0
        self.calm = False
        self._seed = seed
        self._hang_s = hang_s
        self._seen: Counter[tuple[str, int]] = Counter()

    async def start(self) -> web.AppRunner:
        """Listens; the caller cleans the runner up."""
        application = web.Application()
        application.router.add_post("/{destination}", self._answer)
        runner = web.AppRunner(application, access_log=None, handler_cancellation=False)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.port = runner.addresses[0][1]
        return runner

    async def _answer(self, request: web.Request) -> web.Response:
        arrival = Arrival(
            destination=request.match_info["destination"],
            sequence=int(request.headers["Relay-Sequence"]),
            attempt=int(request.headers["Relay-Attempt"]),
            entity_key=request.headers.get("Relay-Entity-Key"),
            key=request.headers["Idempotency-Key"],
            body=await request.read(),
            replica=request.headers["X-Replica"],
            redrive="Relay-Redrive" in request.headers,
            began_s=time.monotonic(),
        )
        self.began(arrival)
        job = (arrival.destination, arrival.sequence)
        self._seen[job] += 1
        status, delay_s = self._rule(arrival, self._seen[job])
        await asyncio.sleep(delay_s)
        arrival.ended_s, arrival.status = time.monotonic(), status
        self.ended(arrival)
        return web.Response(status=status)

    def began(self, arrival: Arrival) -> None:
        """Takes note of a request that has arrived."""
        self.arrivals.append(arrival)

    def ended(self, arrival: Arrival) -> None:
        """Takes note of a request that is answered."""

    def _rule(self, arrival: Arrival, time_seen: int) -> tuple[int, float]:
        if b'"poison": true' in arrival.body and time_seen <= POISON_FAILS:
            return 500, 0.0
        if self.calm:
            return 204, 0.0
        # Seeded by what is delivered, so that the same seed gives the same receiver whatever the timing.
        text = f"{self._seed} {arrival.destination} {arrival.sequence} {time_seen}"
        dice = random.Random(hashlib.sha256(text.encode()).digest())
        roll = dice.random()
        if roll < 0.06:
            return 500, 0.0
        if roll < 0.08:
            return LATE, self._hang_s
        return 204, dice.choice((0.0, 0.0, 0.0, 0.002, 0.01, 0.1))
