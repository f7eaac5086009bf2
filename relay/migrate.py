"""Brings a database to this version's schema: plain SQL files, forward only, one replica at a time."""

import asyncio
import hashlib
import importlib.resources
import random
import re
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Literal

import psycopg
from psycopg import AsyncConnection, IsolationLevel, errors
from psycopg.conninfo import conninfo_to_dict

from relay.errors import DatabaseUnavailableError, SchemaError

# "outbox" read as a number; any constant does, as long as nobody else's is the same.
# Written into the statement: a statement with parameters keeps its snapshot until the transaction ends, and
# CREATE INDEX CONCURRENTLY waits for every snapshot.
_TRY_LOCK = b"SELECT pg_try_advisory_xact_lock(%d)" % 0x6F7574626F78
_LOCK_TIMEOUT_S = 3
_CONNECT_TIMEOUT_S = 5
_LOCK_TRIES = 20
_HEADER = re.compile(r"^-- (old replicas|transaction): +(.*)$", re.MULTILINE)

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


@dataclass(frozen=True, slots=True)
class Migration:
    """One file of `schema/`. `transactional` false: each statement commits by itself (CREATE INDEX CONCURRENTLY)."""

    version: int
    name: str
    sql: bytes
    old_replicas_may_run: bool
    transactional: bool

    @property
    def checksum(self) -> str:
        """SHA-256 of the file, in hexadecimal."""
        return hashlib.sha256(self.sql).hexdigest()


@dataclass(frozen=True, slots=True)
class Comparison:
    """How a database's schema differs from this version's. `verdict` is `same` when nothing does."""

    verdict: Literal["same", "missing", "behind", "ahead", "changed"]
    sentence: str
    usable: bool


def migrations(folder: Traversable | None = None) -> tuple[Migration, ...]:
    """Every migration of this version in order of its number.

    Raises SchemaError when a file's name or header is not as CONTRIBUTING.md asks.
    """
    folder = folder or _folder()
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
    found = tuple(_parse(file.name, file.read_bytes()) for file in files)
    if [m.version for m in found] != list(range(1, len(found) + 1)):
        raise SchemaError(f"migrations must be numbered 1 to n without a gap, found {[m.name for m in found]}")
    return found


def _folder() -> Traversable:
    # A wheel carries the files inside the package; in a checkout they stand beside it.
    packaged = importlib.resources.files("relay") / "_schema"
    return packaged if packaged.is_dir() else Path(__file__).parent.parent / "schema"


def _parse(name: str, sql: bytes) -> Migration:
    number = re.match(r"^(\d{4})_[a-z_]+\.sql$", name)
    header = dict(_HEADER.findall(sql.decode()))
    if number is None or header.get("transaction") not in {"one", "none"}:
        raise SchemaError(f"{name}: wants a name like 0007_word.sql and a header line '-- transaction: one' or 'none'")
    if header.get("old replicas") not in {"may run", "must stop"}:
        raise SchemaError(f"{name}: wants a header line '-- old replicas: may run' or 'must stop'")
    return Migration(
        version=int(number[1]),
        name=name.removesuffix(".sql"),
        sql=sql,
        old_replicas_may_run=header["old replicas"] == "may run",
        transactional=header["transaction"] == "one",
    )


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


async def _apply_missing(worker: AsyncConnection, wanted: tuple[Migration, ...]) -> list[str]:
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


def judge(rows: list[tuple[int, str, str, bool]], wanted: tuple[Migration, ...]) -> Comparison:
    """What the recorded migrations (version, name, checksum, old_replicas_may_run) mean for this version."""
    known = {m.version: m for m in wanted}
    changed = [name for version, name, checksum, _ in rows if version in known and known[version].checksum != checksum]
    if changed:
        return Comparison(
            "changed",
            f"{', '.join(changed)}: the database was migrated with a different text of this file; "
            "a migration is never edited after its release, write a new one",
            usable=False,
        )
    newer = [(name, may_run) for version, name, _, may_run in rows if version not in known]
    if newer:
        usable = all(may_run for _, may_run in newer)
        return Comparison(
            "ahead",
            f"the database has {newer[-1][0]}, this version knows migrations up to {wanted[-1].name}; "
            + ("this version may still run against it" if usable else "upgrade this replica before it can run"),
            usable=usable,
        )
    missing = [m.name for m in wanted if m.version not in {row[0] for row in rows}]
    if missing:
        return Comparison("behind", f"missing migrations: {', '.join(missing)}; run `relay migrate`", usable=False)
    return Comparison("same", f"the schema is at {wanted[-1].name}", usable=True)


async def _apply(connection: AsyncConnection, migration: Migration) -> None:
    for _ in range(_LOCK_TRIES):
        try:
            if migration.transactional:
                async with connection.transaction():
                    await _record(connection, migration)
                    await connection.execute(migration.sql)
            else:
                # Each file of this kind can be run again: it drops a half-built index before it builds one.
                for statement in migration.sql.split(b";\n"):
                    if not _is_only_comment(statement):
                        await connection.execute(statement)
                await _record(connection, migration)
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


async def _record(connection: AsyncConnection, migration: Migration) -> None:
    # First in its transaction: the primary key stops a second writer even if the guard's connection is lost.
    await connection.execute(
        b"INSERT INTO outbox.migration (version, name, checksum, old_replicas_may_run) VALUES (%s, %s, %s, %s)",
        (migration.version, migration.name, migration.checksum, migration.old_replicas_may_run),
    )


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
