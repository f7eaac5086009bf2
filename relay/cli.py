"""Verbs and exit codes; what they do stands elsewhere.

| code | meaning                                                              |
|------|----------------------------------------------------------------------|
| 0    | done                                                                 |
| 1    | looked, and found a fault: `check`, `migrate --check`, `demo`        |
| 2    | wrong usage, or configuration that cannot be used                    |
| 3    | the database is not to be had                                        |
| 4    | the database's schema is not what this version needs                 |
| 5    | refused: the request contradicts what the database holds             |
"""

import asyncio
import dataclasses
import functools
import json
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, NoReturn, ParamSpec

import click
import psycopg

from relay import __version__, service
from relay import check as checks
from relay import migrate as migrations
from relay.admin import CAP, Admin, DestinationStatus, Status
from relay.config import Settings, load
from relay.database import UNAVAILABLE, Database
from relay.errors import ConfigError, DatabaseUnavailableError, RelayError, SchemaError
from relay.telemetry import configure_logging

P = ParamSpec("P")


def _exit_code(error: RelayError) -> int:
    match error:
        case ConfigError():
            return 2
        case DatabaseUnavailableError():
            return 3
        case SchemaError():
            return 4
        case _:
            return 5


def _fail(error: RelayError) -> NoReturn:
    for line in str(error).splitlines():
        click.echo(f"relay: {line}", err=True)
    sys.exit(_exit_code(error))


def _verb(function: Callable[P, Coroutine[Any, Any, int | None]]) -> Callable[P, None]:
    """Runs a coroutine as a command: its number is the exit code, a fault of the operator's is one sentence."""

    @functools.wraps(function)
    def command(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            sys.exit(asyncio.run(function(*args, **kwargs)) or 0)
        except RelayError as error:
            _fail(error)
        except UNAVAILABLE as error:
            _fail(DatabaseUnavailableError(f"the database cannot be used: {error}".strip()))
        except psycopg.errors.InsufficientPrivilege as error:
            _fail(DatabaseUnavailableError(f"the database refuses: {error}; `relay check` names the grants".strip()))
        except psycopg.errors.UndefinedTable:
            _fail(SchemaError("the database has no outbox schema; run `relay migrate`"))

    return command


def _settings(context: click.Context) -> Settings:
    return load(context.obj)


def _database(settings: Settings) -> Database:
    database = settings.database
    return Database(
        database.dsn.text(), name="relay admin", pool_size=2, prepared_statements=False,
        connect_timeout_s=database.connect_timeout_s, statement_timeout_s=database.statement_timeout_s,
    )  # fmt: skip


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="relay")
@click.option(
    "--config",
    "-c",
    type=click.Path(path_type=Path),
    help="Configuration file.  [default: $RELAY_CONFIG, ./relay.yaml]",
)
@click.pass_context
def main(context: click.Context, config: Path | None) -> None:
    """Deliver jobs from PostgreSQL to webhooks: signed, retried, in order for each entity.

    A first deployment is `relay migrate`, `relay sync`, `relay check`, and then `relay run` on each replica.
    """
    context.obj = config


@main.command()
@click.pass_context
@_verb
async def run(context: click.Context) -> None:
    """Run a replica until SIGTERM.

    The first SIGTERM or SIGINT finishes what is in flight and gives back the rest; a second one cuts it off.
    """
    settings = _settings(context)
    configure_logging(settings.log.level, settings.log.format)
    await service.run(settings)


@main.command()
@click.option("--check", "only_check", is_flag=True, help="Change nothing; exit with 1 when the schema differs.")
@click.pass_context
@_verb
async def migrate(context: click.Context, only_check: bool) -> int:
    """Bring the database to this version's schema. Safe to run from many places at once."""
    dsn = _settings(context).database.dsn.text()
    if only_check:
        comparison = await migrations.compare(dsn)
        click.echo(comparison.sentence)
        return 0 if comparison.verdict == "same" else 1
    applied = await migrations.migrate(dsn)
    click.echo(f"applied {', '.join(applied)}" if applied else "nothing to do")
    return 0


@main.command()
@click.option(
    "--retire", "retire", multiple=True, metavar="NAME", help="Stop routing to a destination that was removed."
)
@click.pass_context
@_verb
async def sync(context: click.Context, retire: tuple[str, ...]) -> None:
    """Register the configured destinations, so that inserts are routed to them.

    A deploy step: replicas only compare. A registry of a higher registry.generation is left alone.
    """
    settings = _settings(context)
    destinations = settings.resolved_destinations()
    async with _database(settings) as database:
        synced = await Admin(database).sync(destinations, generation=settings.registry.generation, retire=retire)
    for word, names in (("registered", synced.registered), ("retired", synced.retired)):
        click.echo(f"{word}: {', '.join(names) or 'nothing new'}")
    for name in synced.not_configured:
        click.echo(
            f"{name} is registered but not configured; `relay sync --retire {name}` stops routing to it", err=True
        )


@main.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object a finding.")
@click.pass_context
@_verb
async def check(context: click.Context, as_json: bool) -> int:
    """Check configuration, database, schema, privileges and LISTEN, and say what to do.

    Exits with 1 when there is a fault; warnings leave it at 0.
    """
    faults = 0
    async for finding in checks.check(_settings(context)):
        faults += finding.level == "fault"
        if as_json:
            click.echo(json.dumps(dataclasses.asdict(finding)))
        else:
            colour = {"ok": "green", "warning": "yellow", "fault": "red"}[finding.level]
            click.echo(f"{click.style(f'{finding.level:7}', fg=colour)} {finding.subject}: {finding.sentence}")
    return 1 if faults else 0


@main.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_context
@_verb
async def status(context: click.Context, as_json: bool) -> None:
    """Show what waits, runs, stands still and failed, for each destination; and the replicas."""
    async with _database(_settings(context)) as database:
        found = await Admin(database).status()
    click.echo(json.dumps(dataclasses.asdict(found)) if as_json else _status_text(found))


def _status_text(status: Status) -> str:
    head = ("DESTINATION", "DUE", "OLDEST", "LATER", "RUNNING", "BLOCKED", "DEAD", "STANDING", "DONE/S", "")
    table = [head, *(_status_row(each) for each in status.destinations)]
    widths = [max(len(row[i]) for row in table) for i in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    if status.unrouted:
        lines.append(f"{_count(status.unrouted)} unrouted: no destination subscribes to their topic")
    names = ", ".join(name for name, _ in status.replicas) or "none connected"
    return "\n".join([*lines, f"replicas: {names}"])


def _status_row(each: DestinationStatus) -> tuple[str, ...]:
    counts = (each.later, each.running, each.blocked, each.dead, each.standing_lanes)
    remarks = [
        f"paused: {each.paused_why}" if each.paused_why else "",
        "retired" if each.retired else "",
        "" if each.registered else "not registered",
    ]
    oldest = "-" if each.oldest_due_age_s is None else f"{each.oldest_due_age_s:.1f}s"
    return (
        each.name, _count(each.due), oldest, *(_count(count) for count in counts), f"{each.done_per_s:.1f}",
        ", ".join(remark for remark in remarks if remark),
    )  # fmt: skip


def _count(number: int) -> str:
    return f"{number}+" if number >= CAP else str(number)


@main.command()
@click.argument("destination")
@click.option("--why", default="paused by an operator", show_default=True, help="Shown by `relay status`.")
@click.pass_context
@_verb
async def pause(context: click.Context, destination: str, why: str) -> None:
    """Stop every replica from sending to DESTINATION. Its jobs wait; none is charged an attempt."""
    async with _database(_settings(context)) as database:
        await Admin(database).pause(destination, why)
    click.echo(f"{destination} is paused; `relay resume {destination}` goes on")


@main.command()
@click.argument("destination")
@click.pass_context
@_verb
async def resume(context: click.Context, destination: str) -> None:
    """Let every replica send to DESTINATION again."""
    async with _database(_settings(context)) as database:
        was_paused = await Admin(database).resume(destination)
    click.echo(f"{destination} goes on" if was_paused else f"{destination} was not paused")


@main.command()
@click.option("--seconds", default=30, show_default=True, type=click.IntRange(5, 600), help="How long it runs.")
@click.option("--json", "as_json", is_flag=True, help="The last line is a JSON object.")
def demo(seconds: int, as_json: bool) -> None:
    """Watch it work: a private PostgreSQL, a shop, a receiver, two replicas; one of them is killed half-way."""
    try:
        from relay.demo.main import run as run_demo  # noqa: PLC0415 - only the demo extra brings what it imports
    except ImportError as error:
        _fail(RelayError(f"the demo needs its extra: pip install 'outbox-relay[demo]' ({error})"))
    try:
        sys.exit(run_demo(seconds, as_json))
    except RelayError as error:
        _fail(error)
