"""`relay check`: everything that would keep a replica from working, found before it starts."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Literal

import psycopg

from relay import listen
from relay.admin import Admin
from relay.config import Settings, warnings
from relay.database import Database
from relay.errors import ConfigError, DatabaseUnavailableError
from relay.migrate import compare
from relay.model import Destination


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: whether it is well, and a sentence that says what was found or what to do."""

    subject: str
    level: Literal["ok", "warning", "fault"]
    sentence: str


async def check(settings: Settings) -> AsyncIterator[Finding]:
    """Looks at one thing after another; what cannot be looked at because of an earlier fault is left out."""
    destinations: tuple[Destination, ...] = ()
    try:
        destinations = settings.resolved_destinations()
        yield Finding("configuration", "ok", f"{len(destinations)} destinations; {_leases(settings, destinations)}")
    except ConfigError as error:
        for line in str(error).splitlines():
            yield Finding("configuration", "fault", line)
    for sentence in warnings(settings):
        yield Finding("configuration", "warning", sentence)

    try:
        schema = await compare(settings.database.dsn.text())
    except DatabaseUnavailableError as error:
        yield Finding("database", "fault", str(error))
        return
    yield Finding("database", "ok", "reachable")
    level: Literal["ok", "warning", "fault"] = "fault" if not schema.usable else "ok"
    yield Finding("schema", "warning" if schema.usable and schema.verdict != "same" else level, schema.sentence)
    if not schema.usable:
        return
    async for finding in _with_database(settings, destinations):
        yield finding


def _leases(settings: Settings, destinations: tuple[Destination, ...]) -> str:
    longest_s = max((d.deadline_s for d in destinations), default=settings.defaults.deadline_s)
    replica = settings.replica
    return (
        f"longest deadline {longest_s:g} s < drain {replica.drain_s:g} s < grace {replica.termination_grace_s:g} s, "
        f"lease {replica.lease_s:g} s"
    )


async def _with_database(settings: Settings, destinations: tuple[Destination, ...]) -> AsyncIterator[Finding]:
    database = settings.database
    async with Database(database.dsn.text(), name="relay check", pool_size=2) as connections:
        admin = Admin(connections)
        missing = await admin.missing_privileges()
        if missing:
            advice = "grant the role outbox_relay to this user"
            yield Finding("privileges", "fault", f"this user lacks {'; '.join(missing)}: {advice}")
            return
        yield Finding("privileges", "ok", "this user may do what a replica does")
        registered = {r.name: r for r in await admin.registry() if not r.retired}
        behind = [
            d.name
            for d in destinations
            if d.name not in registered or set(registered[d.name].topics) != set(d.topics)
            or registered[d.name].on_dead != d.on_dead
        ]  # fmt: skip
        extra = sorted(registered.keys() - {d.name for d in destinations})
        if behind or extra:
            text = f"configured otherwise than registered: {', '.join(behind) or 'none'}; "
            text += f"registered, not configured: {', '.join(extra) or 'none'}; run `relay sync`"
            yield Finding("registry", "warning", text)
        else:
            yield Finding("registry", "ok", "registered as configured")

    if not settings.replica.notify:
        yield Finding("listen", "ok", "switched off; new jobs wait for the poll")
        return
    try:
        heard = await listen.arrives((database.listen_dsn or database.dsn).text(), database.connect_timeout_s)
    except psycopg.OperationalError as error:
        yield Finding("listen", "fault", f"database.listen_dsn cannot be reached: {str(error).strip().splitlines()[0]}")
        return
    if heard:
        yield Finding("listen", "ok", "a NOTIFY arrives")
    else:
        sentence = "a NOTIFY does not arrive, a pooler swallows it: set database.listen_dsn past the pooler, "
        yield Finding(
            "listen", "warning", sentence + "or replica.notify to false; until then new jobs wait for the poll"
        )
