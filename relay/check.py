"""`relay check`: everything that would keep a replica from working, found before it starts."""

import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psycopg
from psycopg.conninfo import conninfo_to_dict

from relay import listen
from relay.admin import Admin, Registered
from relay.config import Settings, load, warnings
from relay.database import Database
from relay.drift import drift
from relay.errors import ConfigError, DatabaseUnavailableError
from relay.migrate import compare
from relay.model import Destination

_GRANT = "grant the role outbox_relay to this user"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: whether it is well, and a sentence that says what was found or what to do."""

    subject: str
    level: Literal["ok", "warning", "fault"]
    sentence: str


def usable_settings(path: Path | None) -> Settings:
    """The settings of `relay.config.load`, with connection strings that libpq can read.

    Raises ConfigError. libpq's own words for a string that it cannot read quote the string, password included.
    """
    settings = load(path)
    for key in ("dsn", "listen_dsn"):
        secret = getattr(settings.database, key)
        if secret is not None and not _readable(secret.text()):
            raise ConfigError(
                f"database.{key}: not a connection string such as postgresql://USER:PASSWORD@HOST:PORT/DATABASE; "
                "percent-encode what is not a letter or digit in the password (the text is not shown, it may hold one)"
            )
    return settings


def _readable(dsn: str) -> bool:
    try:
        parts = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        return False
    # A "/" or "@" in a password that was not encoded moves a piece of it into the host or the port.
    host, port = str(parts.get("host", "")), str(parts.get("port", ""))
    return re.fullmatch(r"[\d,]*", port) is not None and ("@" not in host or host.startswith("@"))


async def check(path: Path | None, *, compare_schema: bool = False) -> AsyncIterator[Finding]:
    """Looks at one thing after another; what cannot be looked at because of an earlier fault is left out.

    With `compare_schema` also at everything in schema outbox.
    """
    destinations: tuple[Destination, ...] = ()
    try:
        settings = usable_settings(path)
    except ConfigError as error:
        for line in str(error).splitlines():
            yield Finding("configuration", "fault", line)
        return
    try:
        destinations = settings.resolved_destinations()
        settings.resolved_tokens()
        yield Finding("configuration", "ok", f"{len(destinations)} destinations; {_leases(settings, destinations)}")
    except ConfigError as error:
        for line in str(error).splitlines():
            yield Finding("configuration", "fault", line)
    for sentence in warnings(settings):
        yield Finding("configuration", "warning", sentence)
    async for finding in _database(settings, destinations, compare_schema=compare_schema):
        yield finding


async def _database(
    settings: Settings, destinations: tuple[Destination, ...], *, compare_schema: bool
) -> AsyncIterator[Finding]:
    try:
        schema = await compare(settings.database.dsn.text())
    except DatabaseUnavailableError as error:
        yield Finding("database", "fault", _one_line(error))
        return
    except psycopg.errors.InsufficientPrivilege as error:
        yield Finding("database", "ok", "reachable")
        yield Finding("privileges", "fault", f"{_one_line(error)}: {_GRANT}")
        return
    yield Finding("database", "ok", "reachable")
    level: Literal["ok", "warning", "fault"] = "fault" if not schema.usable else "ok"
    yield Finding("schema", "warning" if schema.usable and schema.verdict != "same" else level, schema.sentence)
    if not schema.usable:
        return
    if compare_schema and schema.verdict != "same":
        yield Finding("drift", "warning", "not looked for: only this version's own schema can be compared")
    find_drift = compare_schema and schema.verdict == "same"
    async for finding in _connected(settings, destinations, find_drift=find_drift):
        yield finding
    yield await _listen(settings)


def _leases(settings: Settings, destinations: tuple[Destination, ...]) -> str:
    longest_s = max((d.deadline_s for d in destinations), default=settings.defaults.deadline_s)
    replica = settings.replica
    return (
        f"longest deadline {longest_s:g} s < drain {replica.drain_s:g} s < grace {replica.termination_grace_s:g} s, "
        f"lease {replica.lease_s:g} s"
    )


async def _connected(
    settings: Settings, destinations: tuple[Destination, ...], *, find_drift: bool
) -> AsyncIterator[Finding]:
    dsn = settings.database.dsn.text()
    async with Database(dsn, name="relay check", pool_size=2, prepared_statements=False) as connections:
        if find_drift:
            for finding in await _drift(connections):
                yield finding
        admin = Admin(connections)
        if missing := await admin.missing_privileges():
            yield Finding("privileges", "fault", f"this user lacks {'; '.join(missing)}: {_GRANT}")
            return
        yield Finding("privileges", "ok", "this user may do what a replica does")
        yield _registry(await admin.registry(), destinations, settings.destination_names())


async def _drift(connections: Database) -> list[Finding]:
    differences = await drift(connections)
    if not differences:
        return [Finding("drift", "ok", "everything in schema outbox is as the migrations build it")]
    # What somebody added, an index for instance, need not be wrong.
    return [Finding("drift", "fault" if d.wanted else "warning", d.sentence) for d in differences]


def _registry(registered: Sequence[Registered], destinations: Sequence[Destination], names: frozenset[str]) -> Finding:
    known = {r.name: (set(r.topics), r.on_dead) for r in registered if not r.retired}
    wanted = {d.name: (set(d.topics), d.on_dead) for d in destinations}
    behind = {name for name in wanted.keys() & known.keys() if wanted[name] != known[name]}
    differences = [
        f"{what}: {', '.join(sorted(found))}; {advice}"
        for what, found, advice in (
            ("configured, not registered", wanted.keys() - known.keys(), "run `relay sync`"),
            ("configured otherwise than registered", behind, "run `relay sync`"),
            ("registered, not configured", known.keys() - names, "configure it here, or `relay sync --retire NAME`"),
        )
        if found
    ]
    if not differences:
        return Finding("registry", "ok", "registered as configured")
    return Finding("registry", "warning", "; ".join(differences))


async def _listen(settings: Settings) -> Finding:
    database = settings.database
    if not settings.replica.notify:
        return Finding("listen", "ok", "switched off; new jobs wait for the poll")
    key = "listen_dsn" if database.listen_dsn else "dsn"
    try:
        heard = await listen.arrives((database.listen_dsn or database.dsn).text(), database.connect_timeout_s)
    except psycopg.OperationalError as error:
        return Finding("listen", "fault", f"database.{key} cannot be reached: {_one_line(error)}")
    if heard:
        return Finding("listen", "ok", "a NOTIFY arrives")
    return Finding(
        "listen",
        "warning",
        f"a NOTIFY does not arrive over database.{key}, a pooler swallows it: set database.listen_dsn past the "
        "pooler, or replica.notify to false; until then new jobs wait for the poll",
    )


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
