"""The verbs of people who look after a relay that runs."""

import functools
from typing import Any

import click

from relay import render
from relay.admin import Admin
from relay.job import Jobs
from relay.letters import HOW, JOB_ID, bulk, by_option, dead, filtered, filters, not_blank, options
from relay.route import route as route_unrouted
from relay.verb import actor, configured_destinations, database, json_option, settings, verb
from relay.waiting import Waiting

_destination = click.argument("destination", shell_complete=configured_destinations)


@click.command()
@json_option
@verb
async def status(context: click.Context, *, as_json: bool) -> None:
    """Show what waits, runs, stands still and failed, for each destination; and the replicas.

    Counts stop at 2000+ for all destinations together, and not below 20+ for each. STANDING counts the entities
    that stand still behind a dead job.

    \b
    Example: relay status --json | jq '.destinations[] | {name, due, oldest_due_age_s}'
    """
    async with database(settings(context)) as connections:
        found = await Admin(connections).status()
    click.echo(render.as_json(found) if as_json else render.status_text(found))


@click.group()
def job() -> None:
    """Look at one job; end it, or many that wait."""


@job.command()
@click.argument("sought", metavar="ID|KEY")
@click.option("--key", "by_key", is_flag=True, help="It is an idempotency key, even though it looks like an id.")
@click.option("--payload", "content", is_flag=True, help="Show what is sent, too: body and the producer's headers.")
@json_option
@verb
async def show(context: click.Context, *, sought: str, by_key: bool, content: bool, as_json: bool) -> None:
    """Say why a job is not delivered, then show its row, its lane's holder and its failed attempts.

    By idempotency key there may be several, one for each destination. Finished jobs are found by key only among
    the newest 100,000.

    \b
    Example: relay job show 4711
    """
    found = settings(context)
    budgets = {name: each.retry.max_attempts for name, each in found.destinations.items()}
    async with database(found) as connections:
        shown = await Jobs(connections, actor=actor()).show(sought, by_key=by_key, budgets=budgets, content=content)
    click.echo("\n\n".join(map(render.job_text, shown)) if not as_json else "\n".join(map(render.as_json, shown)))


@job.command()
@click.argument("job_id", metavar="[ID]", required=False, type=JOB_ID)
@options(*filters("Inserted"))
@click.option("--unrouted", is_flag=True, help="Jobs that nobody subscribed to, instead of those that wait.")
@options(*HOW)
@json_option
@verb
async def cancel(
    context: click.Context, /, *, job_id: int | None, by: str, why: str | None, as_json: bool, **given: Any
) -> int:
    """Discard a job that waits, is dead, or was never routed; the next job of its entity goes on.

    With filters in place of the ID: all pending and blocked jobs that fit, or with --unrouted those that nobody
    subscribed to; by destination and entity. A job that is running is not cancelled: its request is on its way.

    \b
    Example: relay job cancel 4711 --why "order 42 was withdrawn"
    Example: relay job cancel --destination billing --until 7d --dry-run
    """
    _refuse_vague(job_id, given)
    if job_id is None:
        cancelling = functools.partial(Waiting, actor=by)
        return await bulk(context, cancelling, lambda waiting: waiting.cancel, why=why, as_json=as_json, **given)
    async with database(settings(context)) as connections:
        cancelled = await Jobs(connections, actor=by).cancel(job_id, why)
    click.echo(render.as_json(cancelled) if as_json else f"job {job_id} was {cancelled.was} and is discarded")
    return 0


def _refuse_vague(job_id: int | None, given: dict[str, Any]) -> None:
    many = filtered(given) or given["unrouted"]
    if job_id is None and not many:
        raise click.UsageError("say which: an ID, a filter such as --destination, or --unrouted")
    if job_id is not None and many:
        raise click.UsageError("an ID and filters exclude each other")
    if job_id is not None and (given["limit"] or given["rate_per_s"] or given["dry_run"]):
        raise click.UsageError("--limit, --rate and --dry-run go with filters, not with an ID")
    if given["unrouted"] and given["destination"] is not None:
        raise click.UsageError("a job that is --unrouted has no --destination")


@click.command()
@click.option("--topic", metavar="TOPIC", help="Only of this topic; `order.*` as in a subscription.")
@click.option("--dry-run", is_flag=True, help="Say what would happen, and change nothing.")
@by_option
@json_option
@verb
async def route(context: click.Context, *, topic: str | None, dry_run: bool, by: str, as_json: bool) -> None:
    """Send jobs that nobody subscribed to on to the destinations that subscribe by now, in id order.

    The job keeps its id for the first destination by name; copies for the others get new ids, and the same key.

    \b
    Example: relay sync && relay route --topic "order.*" --dry-run
    """
    async with database(settings(context)) as connections:
        routed = await route_unrouted(connections, actor=by, topic=topic, dry_run=dry_run)
    click.echo(render.as_json(routed) if as_json else render.routed_text(routed))


@click.command()
@_destination
@json_option
@verb
async def ping(context: click.Context, *, destination: str, as_json: bool) -> int:
    """Send DESTINATION a signed test delivery (topic relay.ping) and say what it answers.

    It is sent from here, once, also where the destination is paused. Exits with 1 unless the answer is 2xx.

    \b
    Example: relay ping billing
    """
    from relay.ping import ping as send  # noqa: PLC0415 - see relay.cli.run

    pinged = await send(settings(context), destination)
    click.echo(render.as_json(pinged) if as_json else render.ping_text(pinged))
    return 0 if pinged.delivered else 1


@click.command()
@_destination
@click.option(
    "--why", default="paused by an operator", show_default=True, callback=not_blank, help="Shown by `relay status`."
)
@by_option
@verb
async def pause(context: click.Context, destination: str, why: str, by: str) -> None:
    """Stop every replica from sending to DESTINATION. Its jobs wait; none is charged an attempt.

    \b
    Example: relay pause billing --why "their maintenance until 18:00"
    """
    found = settings(context)
    async with database(found) as connections:
        admin = Admin(connections, actor=by)
        await admin.refuse_unknown(destination, found.destinations)
        paused = await admin.pause(destination, why)
    click.echo(f"{destination} {'is' if paused else 'was already'} paused; `relay resume {destination}` goes on")


@click.command()
@_destination
@by_option
@verb
async def resume(context: click.Context, destination: str, by: str) -> None:
    """Let every replica send to DESTINATION again.

    \b
    Example: relay resume billing
    """
    found = settings(context)
    async with database(found) as connections:
        admin = Admin(connections, actor=by)
        await admin.refuse_unknown(destination, found.destinations)
        was_paused = await admin.resume(destination)
    click.echo(f"{destination} goes on" if was_paused else f"{destination} was not paused")


@click.command()
@click.option("--destination", metavar="NAME", shell_complete=configured_destinations, help="Only of this one.")
@click.option("--job", "job_id", metavar="ID", type=click.IntRange(1, 2**63 - 1), help="Only of this job.")
@click.option("--limit", default=100, show_default=True, type=click.IntRange(min=1), help="At most so many.")
@json_option
@verb
async def operations(
    context: click.Context, *, destination: str | None, job_id: int | None, limit: int, as_json: bool
) -> None:
    """List who did what: redrives, discards, cancellations, routes, pauses, registrations. Newest first.

    \b
    Example: relay operations --destination billing --limit 20
    """
    async with database(settings(context)) as connections:
        found = await Admin(connections).operations(destination=destination, job_id=job_id, most=limit)
    if as_json:
        for each in found:
            click.echo(render.as_json(each))
    else:
        click.echo(render.operations_text(found))


VERBS: tuple[click.Command, ...] = (status, job, dead, route, ping, pause, resume, operations)
