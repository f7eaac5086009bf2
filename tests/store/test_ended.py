"""A session that the server has ended, because it heard nothing of it."""

import pytest

from relay.database import UNAVAILABLE, Database
from tests.store.jobs import Jobs

ENDED = "SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'silent'"


async def stay_silent(database: Database, jobs: Jobs) -> None:
    """Begins a transaction, and goes on with it when its session is gone."""
    async with database.transaction() as transaction:
        await transaction.fetch("clock", {})
        while not await jobs.value(ENDED):
            pass
        await transaction.fetch("clock", {})


async def test_a_transaction_that_was_silent_for_too_long_finds_the_database_away(database: str, jobs: Jobs) -> None:
    async with Database(database, name="silent", pool_size=1, statement_timeout_s=0.2) as silent:
        with pytest.raises(UNAVAILABLE):
            await stay_silent(silent, jobs)
        # The pool has another by then.
        async with silent.transaction() as transaction:
            assert await transaction.fetch("clock", {})
