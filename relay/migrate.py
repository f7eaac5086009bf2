"""Brings a database to this version's schema: plain SQL files, forward only, one replica at a time."""

import asyncio
import random

import psycopg
from psycopg import AsyncConnection, IsolationLevel, errors, sql
from psycopg.conninfo import conninfo_to_dict

from relay.errors import DatabaseUnavailableError, SchemaError
from relay.migration import Comparison, Migration, judge, migrations

# "outbox" in ASCII, read as a number; any constant does, as long as nobody else's is the same.
# Written into the statement: a statement with parameters keeps its snapshot until the transaction ends, and
# CREATE INDEX CONCURRENTLY waits for every snapshot.
_TRY_LOCK = b"SELECT pg_try_advisory_xact_lock(122550254464888)"
_LOCK_TIMEOUT_S = 3
_CONNECT_TIMEOUT_S = 5
_LOCK_TRIES = 20

_BOOTSTRAP = b"""
CREATE SCHEMA IF NOT EXISTS outbox;
CREATE TABLE IF NOT EXISTS outbox.migration (
    version              integer     NOT NULL,
    name                 text        NOT NULL,
    checksum             text        NOT NULL,
    old_replicas_may_run boolean     NOT NULL,
    applied_at           timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT migration_pkey PRIMARY KEY (version)
);
"""


_RECORD = sql.SQL(
    "INSERT INTO outbox.migration (version, name, checksum, old_replicas_may_run) VALUES ({}, {}, {}, {})"
)


def script(after: int = 0) -> str:
    """The migrations with a number above `after` as one SQL script, for another tool to run in a transaction.

    Each has its row in outbox.migration, so that `migrate` finds nothing to do afterwards.

    Raises SchemaError when there is none.
    """
    wanted = [m for m in migrations() if m.version > after]
    if not wanted:
        raise SchemaError(f"no migration after {after}: this version's last is {migrations()[-1].name}")
    parts = [] if after else [_BOOTSTRAP.decode().strip()]
    for migration in wanted:
        parts += [f"{_record(migration).as_string()};", migration.sql.decode().strip()]
    return "\n\n".join(parts) + "\n"


async def migrate(dsn: str, wanted: tuple[Migration, ...] | None = None) -> list[str]:
    """Applies what is missing and returns the names of the migrations applied.

    Any number of processes may call this at once. One of them works, holding an advisory transaction lock on
    a connection of its own; the others ask again and again instead of waiting inside a statement, because a
    statement that waits has a snapshot, and CREATE INDEX CONCURRENTLY waits for every snapshot.

    Raises DatabaseUnavailableError, or SchemaError when the database is ahead of this version, was changed,
    or a table stayed locked by somebody else.
    """
    wanted = migrations() if wanted is None else wanted
    async with await _connect(dsn) as guard, await _connect(dsn) as worker:
        while True:
            # A transaction for each try: whoever builds an index waits for the end of one whose statement he met.
            async with guard.transaction():
                if await _fetch_bool(guard, _TRY_LOCK):
                    return await _apply_missing(worker, wanted)
            await asyncio.sleep(random.uniform(0.05, 0.15))


async def _refuse_encoding(connection: AsyncConnection) -> None:
    # Bytes that are no text in any encoding would make every claim that meets them fail.
    if await _fetch_bool(connection, b"SELECT current_setting('server_encoding') = 'SQL_ASCII'"):
        raise SchemaError("the database's encoding is SQL_ASCII, which checks no text; use one with UTF8")


async def _apply_missing(worker: AsyncConnection, wanted: tuple[Migration, ...]) -> list[str]:
    await _refuse_encoding(worker)
    await worker.execute(_BOOTSTRAP)
    comparison, applied = await _compare(worker, wanted)
    if comparison.verdict == "changed" or (comparison.verdict == "ahead" and not comparison.usable):
        raise SchemaError(comparison.sentence)
    missing = [m for m in wanted if m.version not in applied]
    for migration in missing:
        await _apply(worker, migration)
    return [m.name for m in missing]


async def compare(dsn: str) -> Comparison:
    """Compares the database's schema with this version's, changing nothing."""
    # A plain reader leaves the session as it found it: behind a pooler the next client would inherit it.
    async with await _open(dsn) as connection:
        if not await _fetch_bool(connection, b"SELECT to_regclass('outbox.migration') IS NOT NULL"):
            return Comparison("missing", "the database has no outbox schema; run `relay migrate`", usable=False)
        comparison, _ = await _compare(connection, migrations())
        return comparison


async def _compare(connection: AsyncConnection, wanted: tuple[Migration, ...]) -> tuple[Comparison, set[int]]:
    cursor = await connection.execute(
        b"SELECT version, name, checksum, old_replicas_may_run FROM outbox.migration ORDER BY version"
    )
    rows = await cursor.fetchall()
    return judge(rows, wanted), {row[0] for row in rows}


async def _apply(connection: AsyncConnection, migration: Migration) -> None:
    for _ in range(_LOCK_TRIES):
        try:
            if migration.transactional:
                async with connection.transaction():
                    # First: the primary key stops a second writer even if the guard's connection is lost.
                    await connection.execute(_record(migration))
                    await connection.execute(migration.sql)
            else:
                # Each file of this kind can be run again: it drops a half-built index before it builds one.
                for statement in migration.sql.split(b";\n"):
                    if not _is_only_comment(statement):
                        await connection.execute(statement)
                await connection.execute(_record(migration))
        except errors.LockNotAvailable:
            # Whoever waits for a table lock makes everybody behind him wait too, so we step back and try again.
            await asyncio.sleep(random.uniform(0.5, 1.5))
        except errors.Error as error:
            if connection.broken:
                raise DatabaseUnavailableError(f"the connection was lost during {migration.name}: {error}") from error
            raise SchemaError(f"{migration.name}: {error}".strip()) from error
        else:
            return
    raise SchemaError(
        f"{migration.name}: a table stayed locked for {_LOCK_TRIES} tries of {_LOCK_TIMEOUT_S} s; "
        "end the transaction that holds it (pg_stat_activity) and run `relay migrate` again"
    )


def _is_only_comment(statement: bytes) -> bool:
    return all(not line.strip() or line.lstrip().startswith(b"--") for line in statement.splitlines())


def _record(migration: Migration) -> sql.Composed:
    return _RECORD.format(migration.version, migration.name, migration.checksum, migration.old_replicas_may_run)


async def _open(dsn: str) -> AsyncConnection:
    try:
        parts = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        # What libpq says quotes the piece it stumbled over, and that may be of the password.
        raise DatabaseUnavailableError(
            "the connection string cannot be read; write it as postgresql://user@host:port/database, "
            "and special characters in a password as %XX"
        ) from None
    place = f"{parts.get('host', 'the local socket')}:{parts.get('port', 5432)}"
    try:
        return await AsyncConnection.connect(
            dsn,
            autocommit=True,
            connect_timeout=_CONNECT_TIMEOUT_S,
            application_name="relay migrate",
            prepare_threshold=None,
        )
    except (psycopg.OperationalError, psycopg.ProgrammingError) as error:
        raise DatabaseUnavailableError(f"the database at {place} cannot be reached: {error}".strip()) from error


async def _connect(dsn: str) -> AsyncConnection:
    connection = await _open(dsn)
    try:
        await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
        await connection.execute(
            b"SELECT set_config('lock_timeout', %s, false), set_config('client_min_messages', 'warning', false),"
            b" set_config('search_path', 'pg_catalog', false)",
            (f"{_LOCK_TIMEOUT_S}s",),
        )
        # A migration takes as long as it takes, and its guard is idle meanwhile. Not every version has each of these.
        await connection.execute(
            b"SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN ('statement_timeout',"
            b" 'transaction_timeout', 'idle_in_transaction_session_timeout', 'idle_session_timeout')"
        )
    except (psycopg.OperationalError, psycopg.ProgrammingError) as error:
        raise DatabaseUnavailableError(f"the database cannot be reached: {error}".strip()) from error
    return connection


async def _fetch_bool(connection: AsyncConnection, query: bytes) -> bool:
    cursor = await connection.execute(query)
    row = await cursor.fetchone()
    return bool(row and row[0])
