"""The verbs for dead letters, many at once; and what other verbs for many jobs have in common with them."""

import functools
import sys
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar

import click

from relay import render
from relay.admin import Admin
from relay.bulk import Bulk, Selection
from relay.database import Database
from relay.dead import Letters
from relay.rules.moment import moment
from relay.rules.redrive import Report
from relay.verb import actor, configured_destinations, database, json_option, settings, verb


def not_blank(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """A word that says something, or none at all: what a script's empty variable leaves is neither."""
    if value is not None and not value.strip():
        raise click.BadParameter("it is empty", context, parameter)
    return value


by_option = click.option(
    "--by", metavar="NAME", default=actor, show_default="USER@HOST", callback=not_blank, help="Who does this."
)

JOB_ID = click.IntRange(1, 2**63 - 1)


def _moment(context: click.Context, parameter: click.Parameter, value: str | None) -> datetime | timedelta | None:
    """An instant in ISO 8601, UTC where it names no zone; or how long ago, such as 30m, 2h, 7d."""
    try:
        return None if value is None else moment(value)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from error


Option = Callable[[Any], Any]
Jobs = TypeVar("Jobs", bound=Bulk)


def filters(happened: str) -> tuple[Option, ...]:
    """The options that select jobs by what they are for, and by when they, say, Died."""
    return (
        click.option("--destination", metavar="NAME", shell_complete=configured_destinations, help="Only of this one."),
        click.option("--topic", metavar="TOPIC", help="Only of this topic; `order.*` as in a subscription."),
        click.option("--entity", "entity_key", metavar="KEY", help="Only of this entity."),
        click.option(
            "--since", metavar="TIME", callback=_moment,
            help=f"{happened} since: ISO 8601 (UTC), or an age such as 2h.",
        ),
        click.option("--until", metavar="TIME", callback=_moment, help=f"{happened} until then."),
    )  # fmt: skip


_FILTERS = (
    *filters("Died"),
    click.option(
        "--error", metavar="TEXT", callback=not_blank, help="The last error, class and detail, contains this."
    ),
)
HOW = (
    click.option("--limit", type=click.IntRange(min=1), help="Only the first so many, by destination and id."),
    click.option(
        "--rate", "rate_per_s", type=click.FloatRange(min=0, min_open=True), help="At most so many jobs a second."
    ),
    click.option("--dry-run", is_flag=True, help="Say what would happen, and change nothing."),
    click.option("--yes", is_flag=True, help="Do not ask."),
    by_option,
    click.option("--why", metavar="TEXT", help="Kept with the jobs' history, and shown by `relay job show`."),
)
_ACTING = (
    click.argument("ids", metavar="[ID]...", nargs=-1, type=JOB_ID),
    *_FILTERS,
    click.option("--all", "everything", is_flag=True, help="Every dead letter: no id and no filter."),
    *HOW,
)


def options(*options: Option) -> Option:
    """All of these on one command, in this order."""
    return lambda command: functools.reduce(lambda done, option: option(done), reversed(options), command)


class _Act(Protocol):
    def __call__(
        self, selection: Selection, *, why: str | None, rate_per_s: float | None, dry_run: bool
    ) -> Awaitable[Report]: ...


@click.group()
def dead() -> None:
    """Look at dead letters; give them another chance, or an end."""


@dead.command(name="list")
@options(*_FILTERS)
@click.option("--limit", default=100, show_default=True, type=click.IntRange(min=1), help="At most so many.")
@json_option
@verb
async def list_(context: click.Context, /, *, as_json: bool, **filters: Any) -> None:
    """List dead letters by destination and id, with their last error and how many jobs wait BEHIND each.

    \b
    Example: relay dead list --destination billing --since 2h --error "503"
    """
    selection = Selection(**filters)
    found = settings(context)
    async with database(found) as connections:
        letters_of = Letters(connections, actor=actor())
        await _refuse_unknown(connections, letters_of, selection, set(found.destinations))
        letters = await letters_of.find(selection)
    if as_json:
        for letter in letters:
            click.echo(render.as_json(letter))
    else:
        click.echo(render.letters_text(letters, limit=filters["limit"]))


@dead.command()
@click.argument("job_id", metavar="ID", type=JOB_ID)
@json_option
@verb
async def show(context: click.Context, *, job_id: int, as_json: bool) -> None:
    """Show a dead letter: why it died, its attempts, what it sends, and how many jobs wait behind it.

    \b
    Example: relay dead show 4711
    """
    found = settings(context)
    budgets = {name: each.retry.max_attempts for name, each in found.destinations.items()}
    async with database(found) as connections:
        opened = await Letters(connections, actor=actor()).open(job_id, budgets=budgets)
    click.echo(render.as_json(opened) if as_json else render.letter_text(opened))


@dead.command()
@options(*_ACTING)
@click.option("--force", is_flag=True, help="Also jobs whose entity has gone on; sent with Relay-Redrive: true.")
@json_option
@verb
async def redrive(context: click.Context, /, *, by: str, force: bool, **options: Any) -> int:
    """Make dead letters due again: same key and id, a new budget of attempts, in id order within an entity.

    By ID also jobs that were delivered and are still kept; they are sent with Relay-Redrive: true. Where later jobs
    of its entity may have been delivered already, a job is refused without --force.

    \b
    Example: relay dead redrive --destination billing --error "503" --rate 50 --dry-run
    """
    return await _dead(context, by, lambda letters: functools.partial(letters.redrive, force=force), **options)


@dead.command()
@options(*_ACTING)
@json_option
@verb
async def discard(context: click.Context, /, *, by: str, **options: Any) -> int:
    """Give dead letters up. Their receivers never get them; entities that stood still behind them go on.

    \b
    Example: relay dead discard 4711 4712 --why "orders were withdrawn"
    """
    return await _dead(context, by, lambda letters: letters.discard, **options)


async def _dead(
    context: click.Context, by: str, verb_of: Callable[[Letters], _Act], *, everything: bool, **given: Any
) -> int:
    """Refuses to guess which are meant; see `bulk`."""
    ways = bool(given["ids"]) + filtered(given) + everything
    if ways == 0:
        raise click.UsageError("say which: ids, a filter such as --destination, or --all")
    if ways > 1:
        raise click.UsageError("ids, filters and --all exclude each other")
    if given["ids"] and given["limit"]:
        raise click.UsageError("--limit goes with filters and --all, not with ids")
    return await bulk(context, functools.partial(Letters, actor=by), verb_of, **given)


def filtered(given: dict[str, Any]) -> bool:
    """Whether any filter was given."""
    names = ("destination", "topic", "entity_key", "since", "until", "error")
    return any(given.get(name) is not None for name in names)


async def bulk(
    context: click.Context,
    jobs_of: Callable[[Database], Jobs],
    verb_of: Callable[[Jobs], _Act],
    *,
    why: str | None,
    rate_per_s: float | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **chosen: Any,
) -> int:
    """Counts, asks, acts, and says what happened; 5 where something was refused."""
    if not (dry_run or yes or sys.stdin.isatty()):
        raise click.UsageError("there is nobody to ask: --yes does it, --dry-run only counts")
    found = settings(context)
    async with database(found) as connections:
        selection = Selection(**chosen)
        jobs = jobs_of(connections)
        await _refuse_unknown(connections, jobs, selection, set(found.destinations))
        act = functools.partial(verb_of(jobs), await jobs.pin(selection), why=why, rate_per_s=rate_per_s)
        report = await act(dry_run=not yes or dry_run)
        if not (dry_run or yes) and report.changed:
            click.echo(render.report_text(report), err=True)
            click.confirm(f"{report.verb.capitalize()} {report.changed}?", abort=True, err=True)
            report = await act(dry_run=False)
    click.echo(render.as_json(report) if as_json else render.report_text(report))
    for reason in report.reasons:
        click.echo(f"relay: {reason}", err=True)
    return 5 if report.refused or report.left else 0


async def _refuse_unknown(connections: Database, jobs: Bulk, selection: Selection, configured: set[str]) -> None:
    if selection.destination is None or await jobs.any(selection.destination):
        return
    await Admin(connections).refuse_unknown(selection.destination, configured)
