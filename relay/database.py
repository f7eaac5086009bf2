"""Connections to the database, and transactions that mean the same whatever the role's or a pooler's defaults are."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from importlib.resources import files
from typing import Any, Self

import psycopg
from psycopg import AsyncConnection, AsyncTransaction, IsolationLevel, errors
from psycopg.pq import TransactionStatus
from psycopg.types.array import ListBinaryDumper
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from relay.errors import DatabaseUnavailableError
from relay.rows import Parameters, Row

SQL = {f.name.removesuffix(".sql"): f.read_bytes() for f in (files("relay") / "sql").iterdir() if f.is_file()}

# Somebody else was faster, or held a row: the same statement may well succeed a moment later.
CONFLICTS = (errors.UniqueViolation, errors.DeadlockDetected, errors.LockNotAvailable)
# The database is away, starting, stopping, a standby by now, or has no connection left for us.
# A standby refuses BEGIN READ WRITE as a feature that is not supported.
_STANDBY = (errors.ReadOnlySqlTransaction, errors.FeatureNotSupported)
# The server has heard nothing of us for too long and ended the session; psycopg counts that among internal errors.
_ENDED = (errors.IdleInTransactionSessionTimeout, errors.TransactionTimeout)
UNAVAILABLE = (psycopg.OperationalError, psycopg.InterfaceError, *_STANDBY, *_ENDED, PoolTimeout, TimeoutError)

_LOCK_TIMEOUT_MS = 2_000
# How much later than the database's own limit on a statement ours on a transaction is.
_ANSWER_S = 2.0


class Database:
    """A pool of connections. Everything raises one of UNAVAILABLE when the database is away."""

    def __init__(
        self,
        dsn: str,
        *,
        name: str,
        pool_size: int = 4,
        prepared_statements: bool = True,
        connect_timeout_s: float = 5.0,
        statement_timeout_s: float = 30.0,
    ) -> None:
        self._statement_timeout_ms = round(statement_timeout_s * 1000)
        self._answer_s = statement_timeout_s + _ANSWER_S
        self._pool = AsyncConnectionPool(
            dsn,
            min_size=1,
            max_size=pool_size,
            open=False,
            timeout=connect_timeout_s,
            reconnect_timeout=connect_timeout_s,
            configure=_configure,
            name=name,
            kwargs={
                "autocommit": True,
                "application_name": name,
                "connect_timeout": max(2, round(connect_timeout_s)),
                "client_encoding": "utf8",
                "prepare_threshold": 5 if prepared_statements else None,
                "keepalives_idle": 10,
                "keepalives_interval": 5,
                "keepalives_count": 3,
                "tcp_user_timeout": 30_000,
            },
        )

    async def __aenter__(self) -> Self:
        await self._pool.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._pool.close(timeout=2)

    def pool(self) -> Mapping[str, int]:
        """The connections and who waits for one, as psycopg_pool counts them."""
        return self._pool.get_stats()

    async def wait(self, timeout_s: float) -> None:
        """Returns when a connection works; raises DatabaseUnavailableError after `timeout_s` seconds."""
        try:
            await self._pool.wait(timeout=timeout_s)
        except PoolTimeout as error:
            raise DatabaseUnavailableError(f"the database could not be reached within {timeout_s:g} s") from error

    async def transact(
        self, *statements: tuple[str, Parameters], durable: bool = True, lock_timeout_ms: int = _LOCK_TIMEOUT_MS
    ) -> list[list[Row]]:
        """Runs statements in one transaction and one round trip; the rows of each.

        Without `durable` the commit does not wait for the disk: a crash of the database may forget it.
        """
        async with self._connection() as connection:
            try:
                # connection.transaction() would nest pipelines, and wait for an answer after each of them.
                async with connection.pipeline(), AsyncTransaction(connection):
                    await self._begin(connection, lock_timeout_ms, durable=durable)
                    cursors = [
                        await connection.execute(SQL[name], parameters, binary=True) for name, parameters in statements
                    ]
            except psycopg.Error as error:
                status = connection.info.transaction_status
                if status is TransactionStatus.INERROR:
                    # The server passed over the end of the transaction too.
                    await connection.rollback()
                elif status is not TransactionStatus.IDLE:
                    await connection.close()
                raise _first(error) from None
            return [await cursor.fetchall() if cursor.description else [] for cursor in cursors]

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator["Transaction"]:
        """One transaction whose later statements depend on what the earlier ones found."""
        async with self._connection() as connection, connection.transaction():
            await self._begin(connection, _LOCK_TIMEOUT_MS, durable=True)
            yield Transaction(connection)

    @contextlib.asynccontextmanager
    async def _connection(self) -> AsyncIterator[AsyncConnection]:
        async with self._pool.connection() as connection:
            try:
                # A server that is stuck, or a proxy whose server is gone, acknowledges every packet and answers none.
                async with asyncio.timeout(self._answer_s):
                    yield connection
            except TimeoutError as silent:
                # What it still answers would be taken for the answer to the next question.
                await connection.close()
                raise TimeoutError(f"the database did not answer within {self._answer_s:g} s") from silent
            except _STANDBY:
                # A demoted primary answers, so the pool would keep it for ever.
                await connection.close()
                raise
            except psycopg.InternalError as confused:
                if type(confused) is not psycopg.InternalError:
                    raise
                # A pooler whose server dies at a COMMIT passes on what that said, and adds an error of its own.
                await connection.close()
                raise psycopg.OperationalError(str(confused)) from confused

    async def _begin(self, connection: AsyncConnection, lock_timeout_ms: int, *, durable: bool) -> None:
        settings: Parameters = {
            "lock_timeout": f"{lock_timeout_ms}ms",
            "statement_timeout": f"{self._statement_timeout_ms}ms",
            "transaction_timeout": f"{round(self._answer_s * 1000)}ms",
            "synchronous_commit": "on" if durable else "off",
        }
        await connection.execute(SQL["transaction"], settings)


class Transaction:
    """An open transaction."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def fetch(self, name: str, parameters: Parameters) -> list[Row]:
        """Runs one statement; its rows."""
        cursor = await self._connection.execute(SQL[name], parameters, binary=True)
        return await cursor.fetchall() if cursor.description else []


def _first(error: psycopg.Error) -> psycopg.Error:
    """What a pipeline failed of. What follows it there fails too, and is raised in its place where it arrives apart."""
    while isinstance(error, errors.PipelineAborted) and isinstance(error.__context__, psycopg.Error):
        error = error.__context__
    return error


async def _configure(connection: AsyncConnection[Any]) -> None:
    # READ COMMITTED is part of the lane protocol: with an older snapshot a settle's second statement cannot
    # see what a claim blocked. It is stated at every BEGIN, whatever the role's default is.
    await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
    await connection.set_read_only(False)
    # One type for every int: else each mix of small and large numbers would be another prepared statement.
    connection.adapters.register_dumper(int, Int8BinaryDumper)
    connection.adapters.register_dumper(int, Int8Dumper)
    # In a list as text every element is searched for what needs quotes, which costs five times as much.
    connection.adapters.register_dumper(list, ListBinaryDumper)
