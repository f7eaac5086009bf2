"""What operators do to the database: one method a verb. The pipeline does not need any of it."""

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from psycopg.types.json import Jsonb

from relay.database import Database
from relay.errors import RelayError
from relay.model import Destination

# How many jobs each count of status.sql looks at: of all destinations together, and at least of each. Each of them may
# lie on a page of its own, and there are four such counts: with a hundred destinations a look stays below 20,000 pages.
COUNTED = 2_000
COUNTED_OF_EACH = 20
# How many lanes of all destinations together are looked at for those that wait longest, at least one of each, and how
# many of those are shown; see lanes.sql.
LANES_WALKED = 250
LANES_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Registered:
    """One row of `outbox.destination`."""

    name: str
    topics: tuple[str, ...]
    on_dead: str
    generation: int
    retired: bool
    paused: bool


@dataclass(frozen=True, slots=True)
class Synced:
    """What `relay sync` changed, and which registered destinations the configuration does not have."""

    registered: list[str]
    retired: list[str]
    not_configured: list[str]


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing that `actor` did: a person to a job or a destination, or a replica that paused a destination.

    `detail` says what the verb has to say: `why`, `was`, `marked`, `topics`, `generation` …
    """

    id: int
    at: datetime
    actor: str
    verb: str
    destination: str | None
    job_id: int | None
    detail: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class DestinationStatus:
    """One destination at a glance. Counts of `Status.cap` mean "or more", as any does of `blocked` with `blocked_more`.

    Ages are in seconds, rates per second.
    """

    name: str
    registered: bool
    retired: bool
    paused_why: str | None
    due: int
    oldest_due_age_s: float | None
    later: int
    running: int
    blocked: int
    blocked_more: bool
    dead: int
    standing_lanes: int
    done_per_s: float


@dataclass(frozen=True, slots=True)
class Replica:
    """A connected replica; `connected_s` is None for a user who may not see other users' sessions."""

    name: str
    connected_s: float | None


@dataclass(frozen=True, slots=True)
class WaitingLane:
    """An entity whose jobs wait, or stand still, behind the holder of its lane.

    `why` is what keeps the holder: dead, paused, backoff, scheduled, running, or due. `behind` of `Status.cap` means
    "or more".
    """

    destination: str
    entity_key: str
    holder: int
    why: str
    behind: int
    age_s: float


@dataclass(frozen=True, slots=True)
class Status:
    """Everything `relay status` shows. `lanes` are those whose holder is oldest, of some of each destination.

    Counts stop at `cap`.
    """

    cap: int
    destinations: list[DestinationStatus]
    lanes: list[WaitingLane]
    unrouted: int
    replicas: list[Replica]


class Admin:
    """The statements behind the operator's verbs. `actor` is the person in whose name they act."""

    def __init__(self, database: Database, *, actor: str = "unknown") -> None:
        self._database = database
        self._actor = actor

    async def registry(self) -> list[Registered]:
        """Every registered destination, retired ones too, by name."""
        [found] = await self._database.transact(("registry", {}))
        return [Registered(row[0], tuple(row[1]), *row[2:]) for row in found]

    async def sync(self, destinations: Sequence[Destination], *, generation: int, retire: Sequence[str]) -> Synced:
        """Registers `destinations` as of `generation` and retires the names in `retire`.

        Raises RelayError, changing nothing, when the registry is of a higher generation, or when a name to
        retire is still configured or was never registered. What is neither configured nor named stays.
        """
        configured = {d.name for d in destinations}
        deploy = {"generation": generation, "actor": self._actor}
        async with self._database.transaction() as transaction:
            await transaction.fetch("registry_lock", {})
            known = {row[0]: row for row in await transaction.fetch("registry", {})}
            _refuse(configured, {name: row[3] for name, row in known.items()}, generation, retire)
            registered = await transaction.fetch(
                "register",
                {
                    "names": [d.name for d in destinations],
                    "topics": [Jsonb(list(d.topics)) for d in destinations],
                    "on_dead": [d.on_dead for d in destinations],
                    **deploy,
                },
            )
            retired = await transaction.fetch("retire", {"names": list(retire), **deploy})
        left = {name for name, row in known.items() if not row[4]} - configured - set(retire)
        return Synced(sorted(row[0] for row in registered), sorted(row[0] for row in retired), sorted(left))

    async def refuse_unknown(self, destination: str, configured: Collection[str]) -> None:
        """Raises RelayError for a name that is neither configured nor registered: a slip of the pen."""
        known = {*configured, *(r.name for r in await self.registry())}
        if destination not in known:
            raise RelayError(no_such_destination(destination, known))

    async def pause(self, destination: str, why: str) -> bool:
        """Keeps every replica from claiming for a destination; what is in flight goes on.

        False when it was paused before: then the reason of that stays.
        """
        how = {"name": destination, "why": why, "actor": self._actor}
        [found] = await self._database.transact(("pause", how))
        return bool(found)

    async def resume(self, destination: str) -> bool:
        """Undoes a pause; false when the destination was not paused."""
        [found] = await self._database.transact(("resume", {"name": destination, "actor": self._actor}))
        return bool(found)

    async def operations(self, *, destination: str | None, job_id: int | None, most: int) -> list[Operation]:
        """What was done, newest first, at most so many; None fits everything."""
        fitting = {"destination": destination, "job_id": job_id, "width": most}
        [found] = await self._database.transact(("operations", fitting))
        return [Operation(*row) for row in found]

    async def status(self) -> Status:
        """Every destination, unrouted jobs and replicas, at a cost that does not grow with the table."""
        cap = fair(COUNTED, len(await self.registry()), least=COUNTED_OF_EACH)
        found, unrouted, replicas = await self._database.transact(
            ("status", {"cap": cap}), ("unrouted", {"cap": cap}), ("replicas", {})
        )
        destinations = [DestinationStatus(*row) for row in found]
        names = [each.name for each in destinations]
        asked = {"destinations": names, "walk": fair(LANES_WALKED, len(names)), "show": LANES_SHOWN, "cap": cap}
        [lanes] = await self._database.transact(("lanes", asked))
        return Status(
            cap=cap,
            destinations=destinations,
            lanes=[WaitingLane(*row) for row in lanes],
            unrouted=unrouted[0][0],
            replicas=[Replica(*row) for row in replicas],
        )

    async def missing_privileges(self) -> list[str]:
        """What the connected role may not do and the relay must, a phrase each."""
        [found] = await self._database.transact(("privileges", {}))
        return [row[0] for row in found]


def fair(total: int, destinations: int, *, least: int = 1) -> int:
    """What each of so many destinations may have of a total, and in any case."""
    return max(least, total // max(1, destinations))


def no_such_destination(destination: str, known: Collection[str]) -> str:
    """The sentence for a destination that does not exist, with the nearest name that does."""
    near = difflib.get_close_matches(destination, known, 1)
    rest = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known)) or 'none'}"
    return f"there is no destination {destination}; {rest}"


def _refuse(configured: set[str], generations: dict[str, int], generation: int, retire: Sequence[str]) -> None:
    newest = max(generations.values(), default=0)
    if newest > generation:
        raise RelayError(
            f"the registry is of generation {newest} and this configuration of registry.generation {generation}: "
            "a newer deploy has been here; nothing was changed"
        )
    if still := sorted(configured & set(retire)):
        raise RelayError(f"{', '.join(still)}: still configured; remove it from the configuration before it is retired")
    if unknown := sorted(set(retire) - generations.keys()):
        raise RelayError(
            f"{', '.join(unknown)}: never registered; registered are {', '.join(sorted(generations)) or 'none'}"
        )
