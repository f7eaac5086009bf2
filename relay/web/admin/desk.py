"""What the dashboard and the API show and do; both ask here, so both say the same."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from starlette.exceptions import HTTPException

from relay.admin import Admin, DestinationStatus, Operation, Replica, WaitingLane
from relay.bulk import Selection
from relay.database import Database
from relay.dead import Letters, Page, Place
from relay.job import Cancelled, Jobs, Shown
from relay.rules.redrive import Letter, Report
from relay.web.admin.traffic import Minute, Traffic

# Counts of the jobs behind a dead letter stop here.
BEHIND_CAP = 100
# Most jobs that one request changes.
MOST_AT_ONCE = 1_000
# Most jobs of each index that a search by key looks at.
REACH = 2_000
# How many operations are shown.
OPERATIONS = 100


@dataclass(frozen=True, slots=True)
class DestinationView:
    """A destination: what the database says, and what only this replica knows.

    `breaker` is the state of its gate here, None where this replica does not send to it. `success_ratio` is of this
    replica's attempts in the last hour, None where there were none.
    """

    status: DestinationStatus
    breaker: str | None
    success_ratio: float | None


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything at a glance, as the replica `here` has it. Counts of `cap` mean "or more"."""

    here: str
    cap: int
    destinations: list[DestinationView]
    lanes: list[WaitingLane]
    unrouted: int
    replicas: list[Replica]


@dataclass(frozen=True, slots=True)
class Opened:
    """One job: why it is where it is, how many wait behind it (up to BEHIND_CAP), and what people did to it."""

    shown: Shown
    behind: int | None
    history: list[Operation]


class Desk:
    """`budgets` holds `max_attempts` of every destination configured here, `breakers` asks for their gates' states."""

    def __init__(
        self,
        database: Database,
        *,
        replica: str,
        budgets: Mapping[str, int],
        breakers: Callable[[], Mapping[str, str]],
        traffic: Traffic,
    ) -> None:
        self.replica = replica
        self._database = database
        self._budgets = budgets
        self._breakers = breakers
        self._traffic = traffic

    async def overview(self) -> Overview:
        """Every destination, the lanes that wait longest, unrouted jobs and replicas."""
        status = await Admin(self._database).status()
        breakers = self._breakers()
        views = [
            DestinationView(each, breakers.get(each.name), self._traffic.success_ratio(each.name))
            for each in status.destinations
        ]
        return Overview(self.replica, status.cap, views, status.lanes, status.unrouted, status.replicas)

    def hour(self, destination: str | None = None) -> list[Minute]:
        """This replica's attempts of the last hour, minute by minute."""
        return self._traffic.hour(destination)

    async def letters(self, selection: Selection, *, after: Place | None, most: int) -> Page:
        """Some of the selected dead letters; see `Letters.page`."""
        return await self._letters("nobody").page(selection, after=after, most=most, behind_cap=BEHIND_CAP)

    async def fitting(self, selection: Selection) -> tuple[list[int], bool]:
        """The ids of the first selected dead letters, at most MOST_AT_ONCE, and whether there may be more."""
        page = await self._letters("nobody").page(selection, after=None, most=MOST_AT_ONCE, behind_cap=0)
        return [letter.id for letter in page.letters], page.after is not None

    async def find(self, key: str) -> list[Letter]:
        """The jobs with this id, else with this idempotency key. Raises RelayError when there is none."""
        letters = self._letters("nobody")
        if key.isascii() and key.isdecimal() and len(key) < 19 and (found := await letters.find(_these([int(key)]))):
            return found
        return await letters.find(_these(await self._jobs("nobody").find(key, reach=REACH)))

    async def job(self, job_id: int) -> Opened:
        """Everything about one job. Raises HTTPException 404 when there is none."""
        letters = self._letters("nobody")
        found = await letters.find(_these([job_id]))
        if not found:
            raise HTTPException(404, f"there is no job {job_id}; finished jobs are deleted after their time")
        [shown] = await self._jobs("nobody").show(str(job_id), by_key=False, budgets=self._budgets, content=True)
        history = await Admin(self._database).operations(destination=None, job_id=job_id, most=OPERATIONS)
        return Opened(shown, found[0].behind, history)

    async def act(
        self,
        verb: Literal["redrive", "discard"],
        ids: Sequence[int],
        *,
        actor: str,
        dry_run: bool,
        why: str | None = None,
        force: bool = False,
        delivered: bool = False,
    ) -> Report:
        """Redrives or discards these jobs, or says what that would do; `force` and `delivered` are for a redrive."""
        letters = self._letters(actor)
        if verb == "discard":
            return await letters.discard(_these(ids), why=why, dry_run=dry_run)
        return await letters.redrive(_these(ids), force=force, delivered=delivered, why=why, dry_run=dry_run)

    async def cancel(self, job_id: int, *, actor: str, why: str | None) -> Cancelled:
        """Discards a job that waits, is dead or was never routed. Raises RelayError where it cannot be."""
        return await self._jobs(actor).cancel(job_id, why)

    async def pause(self, destination: str, *, actor: str, why: str) -> bool:
        """Keeps every replica from sending to a destination; false where it was paused before.

        Raises RelayError for an unknown name.
        """
        admin = Admin(self._database, actor=actor)
        await admin.refuse_unknown(destination, self._budgets)
        return await admin.pause(destination, why)

    async def resume(self, destination: str, *, actor: str) -> bool:
        """Undoes a pause; false where there was none. Raises RelayError for an unknown name."""
        admin = Admin(self._database, actor=actor)
        await admin.refuse_unknown(destination, self._budgets)
        return await admin.resume(destination)

    async def operations(self, destination: str | None = None) -> list[Operation]:
        """What was done, to one destination or to all, newest first, at most OPERATIONS."""
        return await Admin(self._database).operations(destination=destination, job_id=None, most=OPERATIONS)

    def _letters(self, actor: str) -> Letters:
        return Letters(self._database, actor=actor)

    def _jobs(self, actor: str) -> Jobs:
        return Jobs(self._database, actor=actor)


def _these(ids: Sequence[int]) -> Selection:
    return Selection(ids=tuple(ids))
