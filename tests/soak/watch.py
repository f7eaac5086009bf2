"""The receiver of a long run: judges each request as it comes, and forgets it."""

from collections import defaultdict

from tests.chaos.producers import LOCKED
from tests.chaos.receiver import Arrival, Receiver

_ACCEPTED = 204


class Watch(Receiver):
    """Counts what arrived, out of order, at the same time as another job of its lane, or again after it was accepted.

    `slow` are accepted answers so late that the sender may have given up: they may be followed by the job again.
    """

    def __init__(self, seed: int, deadline_s: float) -> None:
        super().__init__(seed, hang_s=1.5 * deadline_s)
        self.requests = 0
        self.duplicates = 0
        self.inversions = 0
        self.overlaps = 0
        self.slow = 0
        self._slow_s = deadline_s / 2
        # One byte a job: a set of an hour's ids would be most of this process.
        self._accepted = bytearray()
        self._latest: dict[tuple[str, str], int] = defaultdict(int)

    def accepted(self, sequence: int) -> bool:
        """Whether this job was answered with success."""
        return sequence < len(self._accepted) and bool(self._accepted[sequence])

    def began(self, arrival: Arrival) -> None:
        """Judges the order in which requests begin."""
        self.requests += 1
        self.duplicates += self.accepted(arrival.sequence)
        if lane := _lane(arrival):
            self.inversions += arrival.sequence < self._latest[lane]
            self._latest[lane] = max(self._latest[lane], arrival.sequence)

    def ended(self, arrival: Arrival) -> None:
        """Judges what began while this request was being answered."""
        if arrival.status != _ACCEPTED:
            return
        if arrival.sequence >= len(self._accepted):
            self._accepted.extend(bytes(arrival.sequence + 65_536 - len(self._accepted)))
        self._accepted[arrival.sequence] = 1
        self._seen.pop((arrival.destination, arrival.sequence), None)
        self.slow += (arrival.ended_s or 0.0) - arrival.began_s > self._slow_s
        if lane := _lane(arrival):
            self.overlaps += arrival.sequence < self._latest[lane]


def _lane(arrival: Arrival) -> tuple[str, str] | None:
    """The lane whose order is promised: its producers lock the entity, and nobody sent this job out of turn."""
    if arrival.entity_key not in LOCKED or arrival.redrive:
        return None
    return arrival.destination, arrival.entity_key
