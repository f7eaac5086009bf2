"""The statements of `relay job cancel` with filters read the index of their walk, however many jobs have finished."""

from collections.abc import Iterator
from contextlib import closing
from typing import get_args

import psycopg
import pytest

from relay.demo.postgres import Postgres
from relay.rows import Parameters
from tests.store.plan import Mode, Planner, Statistics, buffers, indexes, nodes, scanned
from tests.store.test_plans import named_indexes

FILTERS: Parameters = dict.fromkeys(("destination", "topic", "entity_key", "since", "until"))
FIRST: Parameters = {
    **FILTERS, "after_id": 0, "after_destination": "billing", "after_entity_key": "", "after_priority": -1,
    "after_retry": False, "after_run_at": "-infinity", "width": 100,
}  # fmt: skip
PLANS: dict[str, tuple[str, Parameters, str]] = {
    "lanes": ("waiting", {**FIRST, "walk": "lanes"}, "job_lane"),
    "due": ("waiting", {**FIRST, "walk": "due"}, "job_due"),
    "unrouted": ("waiting", {**FIRST, "walk": "unrouted"}, "job_unrouted"),
    "running": ("waiting_running", {**FILTERS, "destination": "billing", "cap": 1000}, "job_running"),
    "discard": (
        "waiting_discard", {"ids": [*range(1, 101)], "actor": "test", "why": None, "unrouted": False}, "job_pkey"
    ),
}  # fmt: skip
# Pages for each of 100 jobs, as in tests/cli/test_dead_plans.py.
MOST = 100 * 60


@pytest.fixture(scope="module")
def planner(postgres: Postgres, template: str) -> Iterator[Planner]:
    """Jobs that wait, 100 and more of each kind, and 5,000 that finished."""
    dsn = postgres.create_database("cancelling", template=template)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO outbox.job (destination, entity_key, topic, payload) "
            "SELECT 'billing', CASE WHEN n % 2 = 0 THEN 'order-' || n % 200 END, 'a', '{}' "
            "FROM generate_series(1, 5000) n"
        )
        connection.execute("INSERT INTO outbox.job (topic, payload) SELECT 'a', '{}' FROM generate_series(1, 200)")
        connection.execute(
            "INSERT INTO outbox.job (destination, topic, payload, status, claims, locked_by, locked_until) "
            "SELECT 'billing', 'a', '{}', 'running', 1, 'r', now() FROM generate_series(1, 100)"
        )
        connection.execute(
            "INSERT INTO outbox.job (destination, topic, payload, status, finished_at, holds_lane) "
            "SELECT 'billing', 'a', '{}', 'done', now(), false FROM generate_series(1, 5000)"
        )
        connection.execute("VACUUM ANALYZE outbox.job")
    with closing(Planner(dsn)) as planner:
        yield planner


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("mode", get_args(Mode))
@pytest.mark.parametrize("statistics", get_args(Statistics))
def test_a_statement_reads_only_the_index_of_its_walk_and_few_pages_a_job(
    planner: Planner, name: str, mode: Mode, statistics: Statistics
) -> None:
    statement, parameters, index = PLANS[name]
    with planner.knowing(statistics):
        plan = planner.explain(statement, parameters, mode, analyze=True)
    ran = [node for node in nodes(plan) if node["Actual Loops"]]
    assert not scanned(plan) & {"job", "attempt"}
    read = [node for node in ran if node.get("Index Name", "").startswith("job_")]
    assert {node["Index Name"] for node in read} == {index}
    assert all(node["Actual Rows"] <= 101 for node in read)  # a window looks one row ahead
    assert {used for used in indexes(plan) if used.startswith("job_")} <= named_indexes(statement)
    assert any(node.get("Actual Rows", 0) >= 100 for node in ran)
    assert buffers(plan) <= MOST
