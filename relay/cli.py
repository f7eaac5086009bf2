"""Verbs and exit codes; what they do stands elsewhere.

| code | meaning                                                                |
|------|------------------------------------------------------------------------|
| 0    | done                                                                   |
| 1    | looked, and found a fault: `check`, `migrate --check`, `ping`, `demo`  |
| 2    | wrong usage, or configuration that cannot be used                      |
| 3    | the database is not to be had, or it refuses this user                 |
| 4    | the database's schema is not what this version needs                   |
| 5    | refused: the request contradicts what the database holds               |
"""

import sys
from pathlib import Path

import click

from relay import __version__, operate, render
from relay import check as checks
from relay import migrate as migrations
from relay.admin import Admin
from relay.config import colour_unwanted
from relay.errors import ConfigError, RelayError
from relay.telemetry import configure_logging
from relay.verb import actor, database, fail, json_option, settings, verb

# The table above, for docs/cli.md.
EXIT_CODES = "\n".join(line for line in (__doc__ or "").splitlines() if line.startswith("|"))


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="relay")
@click.option(
    "--config", "-c", type=click.Path(path_type=Path), help="Configuration.  [default: $RELAY_CONFIG, ./relay.yaml]"
)
@click.pass_context
def main(context: click.Context, config: Path | None) -> None:
    """Deliver jobs from PostgreSQL to webhooks: signed, retried, in order for each entity.

    A first deployment is `relay migrate`, `relay sync`, `relay check`, and then `relay run` on each replica.
    """
    context.obj = config
    if colour_unwanted():
        context.color = False


@main.command()
@verb
async def run(context: click.Context) -> None:
    """Run a replica until SIGTERM.

    The first SIGTERM or SIGINT finishes what is in flight and gives back the rest; a second one cuts it off.

    \b
    Example: relay --config /etc/relay/relay.yaml run
    """
    # HTTP takes longer to import than most verbs run, and than a shell likes to wait for a completion.
    from relay import service  # noqa: PLC0415

    found = settings(context)
    configure_logging(found.log.level, found.log.format)
    await service.run(found)


@main.command()
@click.option("--check", "only_check", is_flag=True, help="Change nothing; exit with 1 when the schema differs.")
@click.option("--sql", is_flag=True, help="Print the migrations, for another tool to apply; needs no database.")
@click.option("--after", default=0, metavar="N", help="With --sql: only migrations with a higher number.")
@verb
async def migrate(context: click.Context, *, only_check: bool, sql: bool, after: int) -> int:
    """Bring the database to this version's schema. Safe to run from many places at once.

    The user must own schema outbox, or may create it and the roles outbox_producer, _relay and _reader.

    \b
    Example: relay migrate --check || relay migrate
    """
    if sql:
        click.echo(migrations.script(after), nl=False)
        return 0
    dsn = settings(context).database.dsn.text()
    if only_check:
        comparison = await migrations.compare(dsn)
        click.echo(comparison.sentence)
        return 0 if comparison.verdict == "same" else 1
    applied = await migrations.migrate(dsn)
    click.echo(f"applied {', '.join(applied)}" if applied else "nothing to do")
    return 0


@main.command()
@click.option("--retire", multiple=True, metavar="NAME", help="Stop routing to a destination that was removed.")
@json_option
@verb
async def sync(context: click.Context, *, retire: tuple[str, ...], as_json: bool) -> None:
    """Register the configured destinations, so that inserts are routed to them.

    A deploy step: replicas only compare. A registry of a higher registry.generation is left alone.

    \b
    Example: relay sync --retire old-search
    """
    found = settings(context)
    destinations = found.resolved_destinations()
    if not destinations and not retire:
        raise ConfigError(
            "destinations: none is configured; the file is --config, else RELAY_CONFIG, else ./relay.yaml"
        )
    async with database(found) as connections:
        admin = Admin(connections, actor=actor())
        synced = await admin.sync(destinations, generation=found.registry.generation, retire=retire)
    click.echo(render.as_json(synced) if as_json else render.sync_text(synced))


@main.command()
@click.option("--schema", is_flag=True, help="Also compare what is in schema outbox with what the migrations build.")
@json_option
@verb
async def check(context: click.Context, *, schema: bool, as_json: bool) -> int:
    """Check configuration, database, schema, privileges and LISTEN, and say what to do.

    Exits with 1 when there is a fault; warnings leave it at 0.

    \b
    Example: relay check --json | jq -r 'select(.level != "ok") | .sentence'
    """
    faults = 0
    async for finding in checks.check(context.obj, compare_schema=schema):
        faults += finding.level == "fault"
        click.echo(render.as_json(finding) if as_json else render.finding_text(finding))
    return 1 if faults else 0


@main.command()
@click.option("--seconds", default=30, show_default=True, type=click.IntRange(5, 600), help="How long it runs.")
@click.option("--json", "as_json", is_flag=True, help="The last line is a JSON object.")
def demo(seconds: int, as_json: bool) -> None:
    """Watch it work: a private PostgreSQL, a shop, a receiver, two replicas; one of them is killed half-way.

    \b
    Example: relay demo --seconds 15
    """
    try:
        from relay.demo.main import run as run_demo  # noqa: PLC0415 - only the demo extra brings what it imports
    except ImportError as error:
        fail(RelayError(f"the demo needs its extra: pip install 'outbox-relay[demo]' ({error})"))
    try:
        sys.exit(run_demo(seconds, as_json))
    except RelayError as error:
        fail(error)


for _command in operate.VERBS:
    main.add_command(_command)
