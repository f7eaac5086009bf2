"""`relay route`: jobs that nobody subscribed to, sent on to those who subscribe by now."""

from dataclasses import dataclass, field

from relay.database import CONFLICTS, Database
from relay.errors import RelayError

# Each of these rows may become as many jobs as its topic has subscribers.
_WIDTH = 100


@dataclass(slots=True)
class Routed:
    """What became of the unrouted jobs that were asked for, or would.

    `routed` of them have subscribers, `unrouted` have none and stay; `destinations` counts the jobs that each got.
    """

    dry_run: bool
    routed: int = 0
    unrouted: int = 0
    destinations: dict[str, int] = field(default_factory=dict)


async def route(database: Database, *, actor: str, topic: str | None = None, dry_run: bool = False) -> Routed:
    """Sends unrouted jobs on in the order of their ids; `topic` is a topic or a pattern, as in a subscription.

    Raises RelayError where somebody keeps one of them locked; what went before it stays routed.
    """
    report = Routed(dry_run)
    asked = {"topic": topic, "dry_run": dry_run, "actor": actor, "width": _WIDTH}
    after = 0
    while True:
        try:
            [found] = await database.transact(("route", {"after": after, **asked}))
        except CONFLICTS as conflict:
            raise RelayError(
                f"one of the unrouted jobs after {after} is locked by somebody else; "
                f"{report.routed} before it are routed; try again"
            ) from conflict
        for _, asked_for, names in found:
            report.routed += bool(names)
            report.unrouted += asked_for and not names
            for name in names or ():
                report.destinations[name] = report.destinations.get(name, 0) + 1
        if len(found) < _WIDTH:
            return report
        after = found[-1][0]
