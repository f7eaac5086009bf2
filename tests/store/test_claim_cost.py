"""What a claim of 64 costs, in pages touched, in the situations that make other queues slow: hardly more than usual."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from itertools import product
from typing import get_args

import psycopg
import pytest

from relay import rows
from relay.database import Database
from relay.demo.postgres import Postgres
from relay.rows import Range
from relay.search import WIDEST
from relay.store import Store
from tests.store.backlog import freeze
from tests.store.desk import Desk
from tests.store.jobs import LEASE_S, ranges
from tests.store.plan import Mode, Planner, Statistics, buffers

FREE = 64
MOST = 1.5
LARGE = {"hot": 200_000, "backoff": 20_000, "standing": 5_000, "broken": 100_000, "refused": 50_000, "churned": 50_000}
SITUATIONS = {
    "a burst put aside": ranges("burst"),
    "lanes in backoff": ranges("backoff"),
    "lanes behind dead jobs": ranges("standing"),
    "retries that are due before all first attempts": ranges("refused"),
    "a healthy destination": ranges("healthy"),
    "a healthy destination, and a probe of the broken one": ranges("healthy") + ranges("broken", free=1, width=1),
}
FROM_THE_FRONT = "churned, from the front"
SMALL = {"hot": 200, "backoff": 20, "standing": 5, "broken": 100, "refused": 50, "churned": 50}

# As in tests/store/backlog.py: with `claims` above zero the checks of the input stand aside.
_FILL = """
SET session_replication_role = replica;
SET synchronous_commit = off;
INSERT INTO outbox.job (destination, topic, entity_key, idempotency_key, payload, claims, attempts, status, run_at,
                        finished_at)
SELECT r.destination, 't', r.entity_key, 'k', '{{}}', 1, (r.entity_key LIKE 'refused%')::integer, r.status,
       now() + r.due,
       CASE r.status WHEN 'dead' THEN now() END
  FROM (
-- An entity with very many jobs, all of them due, in front of others.
SELECT 'burst' AS destination, 'hot' AS entity_key, 'pending' AS status, interval '-2 h' AS due
  FROM generate_series(1, {hot})
 UNION ALL
-- Lanes whose head waits for its retry, with one more behind it.
SELECT 'backoff', 'late' || n, status, interval '1 h'
  FROM generate_series(1, {backoff}) n, unnest('{{pending,blocked}}'::text[]) status
 UNION ALL
-- Lanes that stand behind a dead job.
SELECT 'standing', 'stands' || n, status, interval '-2 h'
  FROM generate_series(1, {standing}) n, unnest('{{dead,blocked}}'::text[]) status
 UNION ALL
-- Nobody answers here.
SELECT 'broken', 'e' || n, 'pending', interval '-2 h' FROM generate_series(1, {broken}) n
 UNION ALL
-- What a receiver refused once, and will again.
SELECT 'refused', 'refused' || n, 'pending', interval '-2 h' FROM generate_series(1, {refused}) n
 UNION ALL
SELECT 'churned', 'gone' || n, 'pending', interval '-2 h' FROM generate_series(1, {churned}) n
 UNION ALL
-- What is to be claimed, beside all that.
SELECT destination, 'e' || n, 'pending', interval '-1 h'
  FROM generate_series(1, 2000) n, unnest('{{burst,backoff,standing,refused,healthy,churned}}'::text[]) destination
       ) r;
"""
_CHURN = """
UPDATE outbox.job SET status = 'done', holds_lane = false, finished_at = now(), locked_by = NULL, locked_until = NULL
 WHERE destination = 'churned' AND status = 'running'
"""


Costs = dict[tuple[str, Mode, Statistics], int]


def measure(planner: Planner, situation: str, asked: Sequence[Range]) -> Costs:
    """The pages that such a claim touches, when another one has been there before, whatever the planner knows."""
    parameters = {
        **rows.claim_parameters(asked, narrow=False),
        "locked_by": "first",
        "lease_s": LEASE_S,
        "payload_bytes": 1 << 28,
    }
    costs: Costs = {}
    for mode, statistics in product(get_args(Mode), get_args(Statistics)):
        for _ in range(2):
            with planner.knowing(statistics):
                plan = planner.explain("claim", parameters, mode, analyze=True)
        costs[situation, mode, statistics] = buffers(plan)
    return costs


async def costs(dsn: str, sizes: Mapping[str, int]) -> Costs:
    """What claims cost in a table where all of it happens, one after the other."""
    with psycopg.connect(dsn, autocommit=True) as connection, closing(Planner(dsn)) as planner:
        freeze(connection)
        connection.execute(_FILL.format(**sizes).encode())
        connection.execute("VACUUM ANALYZE outbox.job")
        async with Database(dsn, name="cost") as database:
            store = Store(database, locked_by="first", lease_s=LEASE_S)
            burst, churned = Desk(store, "burst"), Desk(store, "churned")
            await burst.fill(FREE)
            found = measure(planner, "a burst put aside, before vacuum", burst.next_ranges(FREE))
            connection.execute("VACUUM outbox.job")
            for situation, asked in SITUATIONS.items():
                found |= measure(planner, situation, asked)
            with psycopg.connect(dsn) as holder:
                holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                holder.execute("SELECT FROM outbox.destination")
                for left in range(sizes["churned"], 0, -WIDEST):
                    await churned.fill(min(left, WIDEST))
                    connection.execute(_CHURN)
                await churned.fill(FREE)
                found |= measure(planner, "churned, vacuum held back", churned.next_ranges(FREE))
                found |= measure(planner, FROM_THE_FRONT, ranges("churned"))
    return found


@pytest.fixture(scope="module")
async def small(postgres: Postgres, template: str) -> Costs:
    """A few hundred of each, and 2,000 others."""
    return await costs(postgres.create_database("cost_small", template=template), SMALL)


@pytest.fixture(scope="module")
async def large(postgres: Postgres, template: str) -> Costs:
    """Four hundred thousand, and 2,000 others."""
    return await costs(postgres.create_database("cost_large", template=template), LARGE)


# Half a million rows are written, claimed and vacuumed first.
@pytest.mark.timeout(300)
def test_a_claim_costs_at_most_half_as_much_again_as_in_a_small_table(small: Costs, large: Costs) -> None:
    ratios = {where: cost / small[where[0], where[1], "analysed"] for where, cost in large.items()}
    from_the_front = {where: ratio for where, ratio in ratios.items() if where[0] == FROM_THE_FRONT}
    assert {where: ratio for where, ratio in ratios.items() if ratio > MOST} == from_the_front
    # The sweep mark is what keeps churned rows cheap; with a scan from the front they are not.
    assert from_the_front
