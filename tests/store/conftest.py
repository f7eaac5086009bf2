"""Replicas that work on the tests' database, as the least privileged role, with whatever defaults."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from relay.database import Database
from relay.store import Store
from tests.conftest import POOLER, Connection
from tests.store.jobs import LEASE_S, Jobs

# Defaults that an administrator may have given to a role for reasons of their own.
ROLES: dict[str, dict[str, str]] = {
    "plain": {},
    "repeatable_read": {"default_transaction_isolation": "repeatable read"},
    "hostile": {
        "default_transaction_isolation": "serializable",
        "default_transaction_read_only": "on",
        "default_transaction_deferrable": "on",
        "search_path": "elsewhere",
        "client_encoding": "LATIN1",
        "datestyle": "SQL, DMY",
        "intervalstyle": "sql_standard",
        "timezone": "Asia/Kathmandu",
        "bytea_output": "escape",
        "extra_float_digits": "-15",
        "lock_timeout": "3ms",
        "statement_timeout": "7s",
        "idle_in_transaction_session_timeout": "7s",
        "jit": "on",
        "jit_above_cost": "0",
        "transform_null_equals": "on",
        "synchronous_commit": "off",
    },
}


@pytest.fixture(scope="session")
def _roles(migrated: str) -> None:
    with psycopg.connect(migrated, autocommit=True) as connection:
        for name, settings in ROLES.items():
            role = sql.Identifier(f"relay_{name}")
            connection.execute(sql.SQL("CREATE ROLE {} LOGIN IN ROLE outbox_relay").format(role))
            for setting, value in settings.items():
                connection.execute(
                    sql.SQL("ALTER ROLE {} SET {} = {}").format(role, sql.Identifier(setting), sql.Literal(value))
                )


@pytest.fixture
def role(request: pytest.FixtureRequest) -> str:
    """The role whose defaults the replicas start with; a test is run with others by parameters."""
    return getattr(request, "param", "plain")


@pytest.fixture
async def open_database(pooled: str, role: str, _roles: None) -> AsyncIterator[Callable[..., Awaitable[Database]]]:
    """Opens a pool of the role's own, closed after the test."""
    async with AsyncExitStack() as stack:

        async def open_(name: str = "test", **options: Any) -> Database:
            dsn = make_conninfo(pooled, user=f"relay_{role}")
            return await stack.enter_async_context(
                Database(dsn, name=name, **{"prepared_statements": not POOLER, **options})
            )

        yield open_


@pytest.fixture
async def replica(open_database: Callable[..., Awaitable[Database]]) -> Callable[..., Awaitable[Store]]:
    """Makes another replica, by its `locked_by`."""

    async def start(name: str, *, lease_s: float = LEASE_S) -> Store:
        return Store(await open_database(name), locked_by=name, lease_s=lease_s)

    return start


@pytest.fixture
async def store(replica: Callable[..., Awaitable[Store]]) -> Store:
    """The replica of most tests."""
    return await replica("first")


@pytest.fixture
async def other(replica: Callable[..., Awaitable[Store]]) -> Store:
    """A second replica."""
    return await replica("second")


@pytest.fixture
def jobs(connection: Connection) -> Jobs:
    """Producer and witness."""
    return Jobs(connection)
