"""The statements of dead letters and of routing read what they name, however many jobs wait beside."""

import re
from collections.abc import Iterator
from contextlib import closing
from typing import get_args

import psycopg
import pytest

from relay.demo.postgres import Postgres
from relay.rows import Parameters
from tests.store.plan import Mode, Planner, Statistics, buffers, indexes, nodes, scanned
from tests.store.test_plans import named_indexes

NOTHING: Parameters = dict.fromkeys(("destination", "topic", "entity_key", "since", "until", "error"))
LANES = [f"order-{n}" for n in range(100)]
CASES: dict[str, Parameters] = {
    "dead": {**NOTHING, "after_destination": "billing", "after_id": 0, "width": 100},
    "dead_by_id": {"ids": [*range(1, 101)]},
    "behind": {"ids": [*range(1, 101)], "cap": 1000},
    "lock_lanes": {"destinations": ["billing"] * 100, "entity_keys": LANES},
    "discard": {"ids": [*range(1, 101)], "actor": "test", "why": None},
    "redrive": {"ids": [*range(1, 101)], "actor": "test", "why": None, "force": True, "delivered": True},
    "route": {"after": 0, "width": 100, "topic": None, "dry_run": False, "actor": "test"},
}
# Pages for each of the 100 jobs: read, locked, written twice, with the indexes it enters and leaves, and kept.
MOST = 100 * 60


@pytest.fixture(scope="module")
def planner(postgres: Postgres, template: str) -> Iterator[Planner]:
    """100 dead heads of lanes, 100 unrouted jobs, and 5,000 others of each kind that there are many of."""
    dsn = postgres.create_database("letters", template=template)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO outbox.job (destination, entity_key, topic, payload, status, finished_at, holds_lane) "
            "SELECT 'billing', 'order-' || n, 'a', '{}', 'dead', now(), true FROM generate_series(0, 99) AS n"
        )
        connection.execute("INSERT INTO outbox.job (topic, payload) SELECT 'a', '{}' FROM generate_series(1, 100)")
        connection.execute(
            "INSERT INTO outbox.job (destination, entity_key, topic, payload, status) "
            "SELECT 'billing', 'order-' || n % 200, 'a', '{}', 'blocked' FROM generate_series(1, 5000) AS n"
        )
        connection.execute(
            "INSERT INTO outbox.job (destination, topic, payload, status, finished_at, holds_lane) "
            "SELECT 'billing', 'a', '{}', 'done', now(), false FROM generate_series(1, 5000)"
        )
        connection.execute("INSERT INTO outbox.destination (name, topics) VALUES ('billing', '{a}'), ('search', '{a}')")
        connection.execute("VACUUM ANALYZE outbox.job")
    with closing(Planner(dsn)) as planner:
        yield planner


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("mode", get_args(Mode))
@pytest.mark.parametrize("statistics", get_args(Statistics))
def test_a_statement_reads_only_the_indexes_it_names_and_few_pages_a_job(
    planner: Planner, name: str, mode: Mode, statistics: Statistics
) -> None:
    with planner.knowing(statistics):
        plan = planner.explain(name, CASES[name], mode, analyze=True)
    assert not scanned(plan) & {"job", "attempt"}
    used = {index for index in indexes(plan) if re.match("job_|attempt_", index)}
    assert used <= named_indexes(name)
    assert any(node.get("Actual Rows", 0) >= 100 for node in nodes(plan))
    assert buffers(plan) <= MOST
