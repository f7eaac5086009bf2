"""What a sample of two million jobs costs the database."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import get_args

import psycopg
import pytest

from relay import sample
from relay.admin import fair
from relay.demo.postgres import Postgres
from tests.store.backlog import fill, freeze
from tests.store.plan import Mode, Planner, Statistics, buffers, scanned

TWO_MILLION = 143_000  # of which the backlog writes fourteen
MANY = 400  # destinations
DESTINATIONS = ["plain", "lanes", "backoff", "hot", "flight", "lapsed", "dead", "skipped"]
_FILL_MANY = """
SET session_replication_role = replica;
INSERT INTO outbox.job (destination, topic, payload, claims, status, run_at)
SELECT 'd' || d, 't', '{}', 1, 'pending', now() - n * interval '1 ms'
  FROM generate_series(1, 1250) n, generate_series(1, 400) d;
INSERT INTO outbox.job (destination, topic, payload, claims, status)
SELECT 'stray' || d, 't', '{}', 1, 'pending' FROM generate_series(1, 20000) d;
INSERT INTO outbox.destination (name, topics) SELECT 'd' || d, '{t}' FROM generate_series(1, 400) d;
"""


def statements(destinations: Sequence[str]) -> dict[str, dict[str, object]]:
    """What a sample executes, with so many registered destinations."""
    cap = sample.cap_of_each(len(destinations))
    walk = fair(sample.LANES, len(destinations))
    return {
        "sample_lock": {},
        "sample": {},
        "registry": {},
        "status": {"cap": cap},
        "sample_lanes": {"destinations": list(destinations), "walk": walk, "cap": sample.BEHIND},
        "unrouted": {"cap": sample.CAP},
        "vacuum": {},
        "migrations": {},
    }


@pytest.fixture(scope="module")
def full(postgres: Postgres, template: str) -> Iterator[Planner]:
    """Two million jobs of all kinds."""
    dsn = postgres.create_database("two_million", template=template)
    fill(dsn, TWO_MILLION)
    with closing(Planner(dsn)) as planner:
        yield planner


@pytest.fixture(scope="module")
def wide(postgres: Postgres, template: str) -> Iterator[Planner]:
    """Half a million due jobs of very many destinations, and some of even more that nobody registered."""
    dsn = postgres.create_database("wide", template=template)
    with psycopg.connect(dsn, autocommit=True) as connection:
        freeze(connection)
        connection.execute(_FILL_MANY.encode())
        connection.execute("VACUUM (ANALYZE) outbox.job, outbox.destination")
    with closing(Planner(dsn)) as planner:
        yield planner


@pytest.mark.parametrize("mode", get_args(Mode))
@pytest.mark.parametrize("statistics", get_args(Statistics))
def test_a_sample_touches_fewer_than_20_000_pages_and_reads_no_job_table_from_end_to_end(
    full: Planner, mode: Mode, statistics: Statistics
) -> None:
    [[jobs]] = full.fetch("SELECT count(*) FROM outbox.job")
    assert jobs > 2_000_000
    with full.knowing(statistics):
        plans = {
            name: full.explain(name, parameters, mode, analyze=True)
            for name, parameters in statements(DESTINATIONS).items()
        }
    pages = {name: buffers(plan) for name, plan in plans.items()}
    assert sum(pages.values()) < 20_000, pages
    assert not {table for plan in plans.values() for table in scanned(plan)} & {"job", "attempt"}


@pytest.mark.parametrize("mode", get_args(Mode))
def test_very_many_destinations_registered_or_not_make_it_some_100_pages_for_each_registered_one(
    wide: Planner, mode: Mode
) -> None:
    found = statements([f"d{number}" for number in range(1, MANY + 1)])
    pages = {name: buffers(wide.explain(name, parameters, mode, analyze=True)) for name, parameters in found.items()}
    assert sum(pages.values()) < 100 * MANY + 20_000, pages
