"""The real claimer of one destination, with as many free slots as it is given; what it claims goes nowhere."""

import random
from collections.abc import Sequence

from relay.claim import Claimer
from relay.model import Destination, Job, Room
from relay.rows import Range
from relay.store import Store


class Desk:
    """`free` is how many more jobs it may take, `jobs` are those it took."""

    def __init__(self, store: Store, name: str, free: int = 0) -> None:
        self.name = name
        self.free = free
        self.jobs: list[Job] = []
        self.claimer = Claimer(
            store,
            [Destination(name, "http://127.0.0.1/")],
            wanted=lambda _: Room(self.free, self.free),
            bytes_held=lambda _: 0,
            payload_budget_bytes=1 << 30,
            on_claimed=self._take,
            note=self._note,
            wake=lambda: None,
            scout=lambda: None,
            poll_s=600.0,
            notify=False,
            rng=random.Random(1),
        )

    def _take(self, jobs: Sequence[Job], _since_s: float) -> None:
        self.jobs += jobs
        self.free -= len(jobs)

    def _note(self, name: str, *, more: bool, retries: bool) -> None:
        pass

    async def fill(self, free: int) -> None:
        """Claims until so many slots are filled."""
        self.free = free
        self.claimer.ring(self.name)
        while self.free:
            await self.claimer.step()

    def next_ranges(self, free: int) -> list[Range]:
        """How it would ask next, once a claim was slow."""
        return self.claimer._views[self.name].search.ranges(self.name, Room(free, free), 1 << 40, slow=True)
