"""How a coroutine becomes a command: what it is given, its exit code, and one sentence for what goes wrong."""

import asyncio
import contextlib
import functools
import os
import pwd
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from typing import Any, Concatenate, NoReturn, ParamSpec

import click
import psycopg
from click.shell_completion import CompletionItem

from relay import migrate
from relay.check import usable_settings
from relay.config import Settings, load
from relay.database import UNAVAILABLE, Database
from relay.errors import ConfigError, DatabaseUnavailableError, RelayError, SchemaError

P = ParamSpec("P")


json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")


def verb(function: Callable[Concatenate[click.Context, P], Coroutine[Any, Any, int | None]]) -> Callable[P, None]:
    """Runs a coroutine as a command: its number is the exit code, a fault of the operator's is one sentence."""

    @click.pass_context
    @functools.wraps(function)
    def command(context: click.Context, /, *args: P.args, **kwargs: P.kwargs) -> None:
        _refuse_bytes(kwargs.values())
        _open_standard_streams()
        # The first process of a container does not die of a SIGTERM that it does not handle.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                sys.exit(runner.run(function(context, *args, **kwargs)) or 0)
        except (RelayError, psycopg.Error, *UNAVAILABLE) as error:
            fail(_explained(error))

    return command


def _open_standard_streams() -> None:
    """Opens what is closed of 0, 1 and 2: libuv aborts a process that closes a socket with one of these numbers."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)  # None where it was closed


def _refuse_bytes(values: Iterable[object]) -> None:
    """Raises UsageError for a word that is not UTF-8: Python hands it on as text that nobody can encode."""
    for value in values:
        for word in value if isinstance(value, tuple) else (value,):
            if isinstance(word, str) and word != word.encode("utf-8", "replace").decode():
                raise click.UsageError(f"{word.encode('utf-8', 'backslashreplace').decode()} is not UTF-8 text")


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes the event loop: uvloop where it is installed, since a delivery costs an eighth less CPU on it."""
    try:
        import uvloop  # noqa: PLC0415 - not for every platform
    except ImportError:
        return None
    return uvloop.new_event_loop


def _explained(error: Exception) -> RelayError:
    text = " ".join(str(error).split())
    match error:
        case RelayError():
            return error
        case psycopg.errors.InsufficientPrivilege():
            return DatabaseUnavailableError(f"the database refuses: {text}; `relay check` names the grants")
        case psycopg.errors.UndefinedTable() | psycopg.errors.UndefinedColumn():
            return SchemaError(f"the database's schema is not this version's ({text}); run `relay migrate`")
        case psycopg.errors.QueryCanceled():
            return DatabaseUnavailableError(f"the database took too long: {text}; see database.statement_timeout_s")
        case _ if isinstance(error, UNAVAILABLE):
            return DatabaseUnavailableError(f"the database cannot be used: {text}")
    raise error


def fail(error: RelayError) -> NoReturn:
    """Ends the process with the error's sentences on standard error and the code of its kind."""
    for line in str(error).splitlines():
        click.echo(f"relay: {line}", err=True)
    match error:
        case ConfigError():
            sys.exit(2)
        case DatabaseUnavailableError():
            sys.exit(3)
        case SchemaError():
            sys.exit(4)
    sys.exit(5)


def settings(context: click.Context) -> Settings:
    """The settings that `--config` and the environment say. Raises ConfigError."""
    return usable_settings(context.obj)


@contextlib.asynccontextmanager
async def database(settings: Settings) -> AsyncIterator[Database]:
    """A few connections for one command.

    Raises DatabaseUnavailableError at once, with the reason, where a pool would try again and again; and
    SchemaError when the schema is not usable.
    """
    dsn = settings.database.dsn.text()
    comparison = await migrate.compare(dsn)
    if not comparison.usable:
        raise SchemaError(comparison.sentence)
    async with Database(
        dsn,
        name="relay admin",
        pool_size=2,
        prepared_statements=False,
        connect_timeout_s=settings.database.connect_timeout_s,
        statement_timeout_s=settings.database.statement_timeout_s,
    ) as connections:
        yield connections


def actor() -> str:
    """Who runs this command: USER@HOST as the operating system has it."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run as a number that has no name
        name = str(os.getuid())
    return f"{name}@{socket.gethostname()}"


def configured_destinations(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names for the shell to complete; none where the configuration cannot be read."""
    try:
        found = load(context.find_root().params.get("config")).destinations
    except (RelayError, OSError):
        return []
    return [CompletionItem(name) for name in sorted(found) if name.startswith(incomplete)]
