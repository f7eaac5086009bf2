"""What a transaction of the relay runs under, whatever defaults its role has."""

from collections.abc import AsyncIterator

import pytest

from relay.store import Store
from tests.conftest import Connection
from tests.store.conftest import ROLES
from tests.store.jobs import Jobs, claim, done

pytestmark = pytest.mark.parametrize("role", list(ROLES), indirect=True)

# What the session that updates a job has set, noted inside of its own transaction.
NOTE = """
CREATE TABLE public.setting (name text, value text);
CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO public.setting SELECT s.name, pg_catalog.current_setting(s.name) FROM pg_catalog.pg_settings s;
    RETURN NEW;
END $$;
CREATE TRIGGER note BEFORE UPDATE ON outbox.job FOR EACH ROW EXECUTE FUNCTION public.note();
"""


@pytest.fixture
async def noted(connection: Connection) -> AsyncIterator[Jobs]:
    """Jobs whose updates are noted; the notes go with the test."""
    await connection.execute(NOTE.encode())
    yield Jobs(connection)
    await connection.execute("DROP TRIGGER note ON outbox.job")
    await connection.execute("DROP FUNCTION public.note; DROP TABLE public.setting")


async def settings(jobs: Jobs, *names: str) -> list[str | None]:
    """What was noted of these settings."""
    found = [await jobs.value("SELECT DISTINCT value FROM public.setting WHERE name = %s", name) for name in names]
    await jobs.connection.execute("TRUNCATE public.setting")
    return found


async def test_a_claim_reads_committed_and_writes(store: Store, noted: Jobs) -> None:
    await noted.add()
    await claim(store)
    assert await settings(noted, "transaction_isolation", "transaction_read_only") == ["read committed", "off"]


async def test_a_settle_reads_committed_and_writes(store: Store, noted: Jobs) -> None:
    await noted.add()
    [job] = await claim(store)
    await settings(noted)
    await store.settle([done(job)])
    assert await settings(noted, "transaction_isolation", "transaction_read_only") == ["read committed", "off"]


async def test_a_claim_waits_at_most_a_tenth_of_a_second_for_a_lock(store: Store, noted: Jobs) -> None:
    await noted.add()
    await claim(store)
    assert await settings(noted, "lock_timeout") == ["100ms"]


async def test_a_settle_has_time_to_wait_for_a_claim(store: Store, noted: Jobs) -> None:
    await noted.add()
    [job] = await claim(store)
    await settings(noted)
    await store.settle([done(job)])
    assert await settings(noted, "lock_timeout") == ["500ms"]


async def test_a_transaction_ends_when_it_takes_too_long(store: Store, noted: Jobs) -> None:
    await noted.add()
    await claim(store)
    names = "statement_timeout", "idle_in_transaction_session_timeout"
    assert await settings(noted, *names) == ["30s", "30s"]


async def test_a_transaction_ends_when_its_client_says_nothing_more(store: Store, noted: Jobs) -> None:
    await noted.add()
    await claim(store)
    has_it = noted.connection.info.server_version >= 170_000
    assert await settings(noted, "transaction_timeout") == ["32s" if has_it else None]


async def test_nothing_is_compiled_just_in_time(store: Store, noted: Jobs) -> None:
    await noted.add()
    await claim(store)
    assert await settings(noted, "jit") == ["off"]


async def test_names_are_looked_up_where_nobody_else_creates_any(store: Store, noted: Jobs) -> None:
    await noted.add()
    await claim(store)
    assert await settings(noted, "search_path") == ["pg_catalog"]


async def test_a_result_is_on_disk_before_it_counts_and_a_claim_does_not_wait_for_it(store: Store, noted: Jobs) -> None:
    await noted.add()
    [job] = await claim(store)
    assert await settings(noted, "synchronous_commit") == ["off"]
    await store.settle([done(job)])
    assert await settings(noted, "synchronous_commit") == ["on"]
