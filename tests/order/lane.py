"""What the situations have in common: delivering what is due, a lease that lapses, a redrive."""

from relay.bulk import Selection
from relay.database import Database
from relay.dead import Letters
from relay.model import Job
from relay.rules.redrive import Report
from relay.store import Store
from tests.store.jobs import claim, done

LAPSED = "locked_until = now() - interval '1 s'"


async def deliver(store: Store, destination: str = "a") -> list[int]:
    """Delivers one destination's jobs until nothing is due, lanes by chains; the ids in the order they started."""
    order: list[int] = []
    running: list[Job] = []
    while running := running or await claim(store, destination):
        order += [job.id for job in running]
        running = (await store.settle([done(job, chain=True) for job in running])).started
    return order


async def redrive(database: Database, *ids: int, force: bool = False) -> Report:
    """Redrives these jobs as an operator does."""
    return await Letters(database, actor="ada").redrive(Selection(ids=ids), force=force)
