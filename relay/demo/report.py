"""What the demo proves: what the receiver saw, held against what the producer committed."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase

SUBSCRIPTIONS = {"audit": ("*",), "billing": ("order.*",), "warehouse": ("order.paid",)}

Lane = tuple[str, str]
Delivery = tuple[str, str]  # destination and idempotency key


@dataclass(frozen=True, slots=True)
class Event:
    """One insert of the producer.

    `committed_s` is the monotonic clock just before its COMMIT was sent; `poisoned`: a destination refuses it
    until it is dead.
    """

    key: str
    topic: str
    committed_s: float
    poisoned: bool = False


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request at the receiver, from its first byte to its answer by the monotonic clock (s)."""

    destination: str
    entity: str
    sequence: int
    key: str
    started_s: float
    ended_s: float
    accepted: bool
    verified: bool


@dataclass(frozen=True, slots=True)
class Row:
    """One row of `outbox.job`."""

    id: int
    destination: str | None
    entity: str
    key: str
    status: str


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds from commit to the first arrival, over all deliveries; None without any."""

    p50: float | None
    p99: float | None


@dataclass(frozen=True, slots=True)
class Summary:
    """The demo's result. Jobs are (event, destination); requests are counted by what they were.

    `lost`: neither accepted nor visible in the table. `unfinished`: visible, but should have been delivered.
    `waiting_behind_dead`: visible, behind a dead letter of their entity. `inversions`: requests out of order
    within their entity, or beside another one. `phantoms`: deliveries of events that were never committed.
    `unverified`: requests whose signature did not verify. `duplicates`: requests after an accepted one.
    """

    committed: int
    delivered: int
    lost: int
    unfinished: int
    duplicates: int
    inversions: int
    phantoms: int
    unverified: int
    retries: int
    dead: int
    poisoned: int
    waiting_behind_dead: int
    rolled_back: int
    killed_replicas: int
    latency_ms: Latency
    postgres: str

    @property
    def kept(self) -> bool:
        """Whether every promise was kept, and only the poisoned jobs died."""
        broken = self.lost + self.unfinished + self.inversions + self.phantoms + self.unverified
        return broken == 0 and self.dead == self.poisoned and self.committed > 0

    def as_json(self) -> dict[str, object]:
        """The fields by name, ready for `json.dumps`."""
        return {**asdict(self), "kept": self.kept}


@dataclass(slots=True)
class _Seen:
    """What one lane's receiver saw last."""

    sequence: int = 0
    ended_s: float = 0.0
    accepted: bool = True


@dataclass(slots=True)
class Tally:
    """Counts as it goes; arrivals come in the order of their answers."""

    events: dict[str, Event] = field(default_factory=dict)
    rolled_back: int = 0
    expected: set[Delivery] = field(default_factory=set)
    delivered: set[Delivery] = field(default_factory=set)
    first_s: dict[Delivery, float] = field(default_factory=dict)
    requests: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    retries: int = 0
    duplicates: int = 0
    inversions: int = 0
    unverified: int = 0
    _lanes: dict[Lane, _Seen] = field(default_factory=lambda: defaultdict(_Seen))

    def commit(self, event: Event) -> None:
        """Count a committed event: every destination that subscribes to its topic is owed one delivery."""
        self.events[event.key] = event
        for destination, topics in SUBSCRIPTIONS.items():
            if any(fnmatchcase(event.topic, topic) for topic in topics):
                self.expected.add((destination, event.key))

    def arrive(self, arrival: Arrival) -> None:
        """Count one answered request."""
        delivery = (arrival.destination, arrival.key)
        self.requests[arrival.destination] += 1
        self.accepted[arrival.destination] += arrival.accepted
        self.unverified += not arrival.verified
        self.duplicates += delivery in self.delivered
        self.retries += delivery in self.first_s and delivery not in self.delivered
        self.first_s.setdefault(delivery, arrival.started_s)
        self.inversions += self._out_of_order(arrival)
        if arrival.accepted:
            self.delivered.add(delivery)

    def _out_of_order(self, arrival: Arrival) -> bool:
        """Whether a lane went back, went on before its job was accepted, or had two requests at once."""
        seen = self._lanes[arrival.destination, arrival.entity]
        same = arrival.sequence == seen.sequence
        wrong = arrival.sequence < seen.sequence or arrival.started_s < seen.ended_s or (not same and not seen.accepted)
        seen.accepted = arrival.accepted or (same and seen.accepted)
        seen.sequence = arrival.sequence
        seen.ended_s = max(arrival.ended_s, seen.ended_s)
        return wrong

    def latency_ms(self) -> Latency:
        """From commit to the first request of each delivery."""
        waits = sorted(
            (started - self.events[key].committed_s) * 1000
            for (_, key), started in self.first_s.items()
            if key in self.events
        )
        return Latency(percentile(waits, 0.50), percentile(waits, 0.99))

    def summary(self, rows: Iterable[Row], *, killed_replicas: int, postgres: str) -> Summary:
        """The result, given every row of the table at the end."""
        fates = fates_of(rows)
        missing = Counter(fates.get(delivery, "lost") for delivery in self.expected - self.delivered)
        return Summary(
            committed=len(self.expected),
            delivered=len(self.delivered & self.expected),
            # A row that says "done" without an accepted request is as lost as no row at all.
            lost=missing["lost"] + missing["done"],
            unfinished=missing["unfinished"],
            duplicates=self.duplicates,
            inversions=self.inversions,
            phantoms=sum(key not in self.events for _, key in self.first_s),
            unverified=self.unverified,
            retries=self.retries,
            dead=sum(fate == "dead" for fate in fates.values()),
            poisoned=sum(event.poisoned for event in self.events.values()),
            waiting_behind_dead=missing["waiting_behind_dead"],
            rolled_back=self.rolled_back,
            killed_replicas=killed_replicas,
            latency_ms=self.latency_ms(),
            postgres=postgres,
        )


def fates_of(rows: Iterable[Row]) -> dict[Delivery, str]:
    """What the table says of each job: `done`, `dead`, `waiting_behind_dead` or `unfinished`."""
    rows = list(rows)
    dead_heads: dict[Lane, int] = {}
    for row in rows:
        if row.status == "dead":
            lane = (row.destination or "", row.entity)
            dead_heads[lane] = min(row.id, dead_heads.get(lane, row.id))
    fates = {}
    for row in rows:
        behind = dead_heads.get((row.destination or "", row.entity), row.id) < row.id
        fate = row.status if row.status in {"done", "dead"} else "unfinished"
        if behind and row.status in {"pending", "blocked"}:
            fate = "waiting_behind_dead"
        fates[row.destination or "", row.key] = fate
    return fates


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """The nearest-rank percentile of values in rising order, to a hundredth; None when there are none."""
    if not ordered:
        return None
    return round(ordered[min(int(share * len(ordered)), len(ordered) - 1)], 2)
