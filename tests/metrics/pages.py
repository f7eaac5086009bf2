"""What a sample of two million jobs costs the database."""

from collections.abc import Iterator
from contextlib import closing
from typing import get_args

import pytest

from relay import sample
from relay.demo.postgres import Postgres
from tests.store.backlog import fill
from tests.store.plan import Mode, Planner, Statistics, buffers, scanned

TWO_MILLION = 143_000  # of which the backlog writes fourteen
DESTINATIONS = ["plain", "lanes", "backoff", "hot", "flight", "lapsed", "dead", "skipped"]
STATEMENTS: dict[str, dict[str, object]] = {
    "sample_lock": {},
    "sample": {},
    "status": {"cap": sample.CAP},
    "sample_lanes": {
        "destinations": DESTINATIONS,
        "walk": sample.LANES // len(DESTINATIONS),
        "cap": sample.BEHIND,
    },
    "unrouted": {"cap": sample.CAP},
    "vacuum": {},
    "migrations": {},
}


@pytest.fixture(scope="module")
def full(postgres: Postgres, template: str) -> Iterator[Planner]:
    """Two million jobs."""
    dsn = postgres.create_database("two_million", template=template)
    fill(dsn, TWO_MILLION)
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
        plans = {name: full.explain(name, parameters, mode, analyze=True) for name, parameters in STATEMENTS.items()}
    pages = {name: buffers(plan) for name, plan in plans.items()}
    assert sum(pages.values()) < 20_000, pages
    assert not {table for plan in plans.values() for table in scanned(plan)} & {"job", "attempt"}
