"""No statement that reads a table that grows is without a test of its plan."""

import re

from relay.database import SQL
from tests.cli import test_dead_plans, test_job_cancel_plans
from tests.store import test_plans

READS = re.compile(r"\b(?:FROM|JOIN|UPDATE|USING)\s+outbox\.(?:job|attempt|operation)\b")
COMMENT = re.compile("--.*")


def test_every_statement_that_reads_jobs_attempts_or_operations_has_its_plan_pinned() -> None:
    reads = {name for name, text in SQL.items() if READS.search(COMMENT.sub("", text.decode()))}
    pinned = {case.statement for case in test_plans.CASES.values()} | set(test_dead_plans.CASES)
    pinned |= {statement for statement, _, _ in test_job_cancel_plans.PLANS.values()}
    assert reads - pinned == set()
    assert {"claim", "settle", "attempts", "operations"} <= reads
