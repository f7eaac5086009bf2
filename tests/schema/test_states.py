"""Which rows of the three tables can exist, whoever writes them."""

import pytest
from psycopg import errors, sql

from tests.schema.rows import Connection, insert, value

Columns = dict[str, object]

NOW = "2020-02-02 02:02:02+00"
SMALLEST: Columns = {"destination": "shop", "topic": "order.paid", "payload": "{}"}
CLAIMED: Columns = {"claims": 2, "attempts": 1}
LEASE: Columns = {"locked_by": "replica", "locked_until": NOW}
FINISHED: Columns = {"finished_at": NOW, "holds_lane": False}

# A legal row in each status.
LEGAL: dict[str, Columns] = {
    "pending": {},
    "running": CLAIMED | LEASE,
    "blocked": {"entity_key": "order-1"},
    "done": CLAIMED | FINISHED,
    "dead": CLAIMED | FINISHED,
    "discarded": FINISHED,
    "unrouted": {"destination": None},
}
ALSO_LEGAL: list[tuple[str, Columns]] = [
    ("pending", CLAIMED),
    ("pending", {"entity_key": "order-1"}),
    ("running", {"entity_key": "order-1"}),
    ("done", {"entity_key": "order-1"}),
    ("dead", {"entity_key": "order-1"}),
    ("dead", {"entity_key": "order-1", "holds_lane": True}),
    ("discarded", {"destination": None}),
    ("unrouted", {"entity_key": "order-1"}),
    ("pending", {"claims": 5, "attempts": 5}),
]


def _illegal() -> list[tuple[str, Columns, str]]:
    def each(constraint: str, columns: Columns, *statuses: str) -> list[tuple[str, Columns, str]]:
        return [(status, columns, constraint) for status in statuses]

    resting = [status for status in LEGAL if status != "running"]
    finished = ["done", "dead", "discarded"]
    unfinished = [status for status in LEGAL if status not in finished]
    routed = [status for status in LEGAL if status not in {"unrouted", "discarded"}]
    return [
        *each("job_status_is_known", {"status": "waiting"}, "pending"),
        *each("job_running_has_a_lease", LEASE, *resting),
        *each("job_running_has_a_lease", {"locked_by": "replica"}, *resting),
        *each("job_running_has_a_lease", {"locked_until": NOW}, *resting),
        *each("job_running_has_a_lease", {"locked_by": None}, "running"),
        *each("job_running_has_a_lease", {"locked_until": None}, "running"),
        *each("job_running_has_a_lease", {"locked_by": None, "locked_until": None}, "running"),
        *each("job_running_was_claimed", {"claims": 0, "attempts": 0}, "running"),
        *each("job_finished_has_a_time", {"finished_at": NOW}, *unfinished),
        *each("job_finished_has_a_time", {"finished_at": None}, *finished),
        *each("job_blocked_has_an_entity", {"entity_key": None}, "blocked"),
        *each("job_without_destination_is_unrouted", {"destination": None}, *routed),
        *each("job_without_destination_is_unrouted", {"destination": "shop"}, "unrouted"),
        *each("job_holds_lane_until_finished", {"holds_lane": False}, *unfinished),
        *each("job_holds_lane_until_finished", {"holds_lane": True, "entity_key": "order-1"}, "done", "discarded"),
        *each("job_holds_lane_until_finished", {"holds_lane": True}, "dead"),
        *each("job_attempts_within_claims", {"claims": 1, "attempts": 2}, *LEGAL),
        *each("job_attempts_within_claims", {"claims": 1, "attempts": -1}, *LEGAL),
        *each("job_pkey", {"id": 1}, "pending"),
    ]


ILLEGAL = _illegal()
DESTINATION: Columns = {"name": "shop", "topics": ["*"]}
ATTEMPT: Columns = {
    "job_id": 1, "claim": 1, "attempt": 1, "replica": "x", "error_class": "dns", "detail": "x", "duration_s": 0.1,
}  # fmt: skip
OTHER_TABLES: list[tuple[str, Columns, str]] = [
    ("destination", {"name": "taken"}, "destination_pkey"),
    ("destination", {"name": ""}, "destination_name_is_lower_case"),
    ("destination", {"name": "Shop"}, "destination_name_is_lower_case"),
    ("destination", {"name": "shop.one"}, "destination_name_is_lower_case"),
    ("destination", {"name": "x" * 64}, "destination_name_is_lower_case"),
    ("destination", {"on_dead": "wait"}, "destination_on_dead_is_block_or_skip"),
    ("destination", {"paused_at": NOW}, "destination_paused_says_why"),
    ("destination", {"paused_why": "gone"}, "destination_paused_says_why"),
    ("attempt", {"claim": 2}, "attempt_pkey"),
    ("attempt", {"response": bytes(4097)}, "attempt_response_is_at_most_4_kib"),
    ("attempt", {"trace_id": "4bf92f3577b34da6"}, "attempt_trace_id_is_32_hex_digits"),
]


def _named(case: tuple[str, Columns] | tuple[str, Columns, str]) -> str:
    changes = ",".join(f"{name}={str(text)[:12]}" for name, text in case[1].items())
    return f"{case[0]}-{changes}"


@pytest.fixture
async def owner(connection: Connection) -> Connection:
    """A connection past the triggers, so that only the constraints decide."""
    await connection.execute("SET session_replication_role = replica")
    return connection


async def write(connection: Connection, table: str, columns: Columns) -> None:
    """Insert a row, its id included."""
    statement = sql.SQL("INSERT INTO outbox.{} ({}) OVERRIDING SYSTEM VALUE VALUES ({})").format(
        sql.Identifier(table),
        sql.SQL(", ").join(map(sql.Identifier, columns)),
        sql.SQL(", ").join(sql.Placeholder() * len(columns)),
    )
    await connection.execute(statement, list(columns.values()))


def job(status: str, changes: Columns) -> Columns:
    """The columns of a legal row in a status, with changes."""
    return {**SMALLEST, "status": status, **LEGAL[status], **changes}


@pytest.mark.parametrize("case", [*((status, Columns()) for status in LEGAL), *ALSO_LEGAL], ids=_named)
async def test_a_legal_row_can_exist(owner: Connection, case: tuple[str, Columns]) -> None:
    await write(owner, "job", job(*case))


@pytest.mark.parametrize("case", ILLEGAL, ids=_named)
async def test_an_impossible_row_is_refused_by_name(owner: Connection, case: tuple[str, Columns, str]) -> None:
    await write(owner, "job", job("pending", {"id": 1}))
    status, changes, constraint = case
    with pytest.raises(errors.IntegrityError) as refused:
        await write(owner, "job", job(status, changes))
    assert refused.value.diag.constraint_name == constraint


async def test_no_legal_row_can_become_an_impossible_one(owner: Connection) -> None:
    became: list[tuple[str, Columns, str | None]] = []
    by_update = [case for case in ILLEGAL if case[2] != "job_pkey"]
    for status, changes, _ in by_update:
        await owner.execute("TRUNCATE outbox.job")
        await write(owner, "job", job(status, {}))
        pairs = sql.SQL(", ").join(sql.SQL("{} = %s").format(sql.Identifier(name)) for name in changes)
        with pytest.raises(errors.CheckViolation) as refused:
            await owner.execute(sql.SQL("UPDATE outbox.job SET {}").format(pairs), list(changes.values()))
        became.append((status, changes, refused.value.diag.constraint_name))
    assert became == by_update


@pytest.mark.parametrize("case", OTHER_TABLES, ids=_named)
async def test_registry_and_attempts_refuse_by_name_too(owner: Connection, case: tuple[str, Columns, str]) -> None:
    await write(owner, "destination", DESTINATION | {"name": "taken"})
    await write(owner, "attempt", ATTEMPT | {"claim": 2})
    table, changes, constraint = case
    with pytest.raises(errors.IntegrityError) as refused:
        await write(owner, table, (DESTINATION if table == "destination" else ATTEMPT) | changes)
    assert refused.value.diag.constraint_name == constraint


async def test_two_jobs_of_one_lane_cannot_run(owner: Connection) -> None:
    await write(owner, "job", job("running", {"entity_key": "order-1"}))
    with pytest.raises(errors.UniqueViolation) as refused:
        await write(owner, "job", job("running", {"entity_key": "order-1"}))
    assert refused.value.diag.constraint_name == "job_running"


@pytest.mark.parametrize(
    "other",
    [{"entity_key": "order-2"}, {"entity_key": "order-1", "destination": "crm"}, {"entity_key": None}],
    ids=["entity", "destination", "unordered"],
)
async def test_jobs_of_different_lanes_and_unordered_ones_run_together(owner: Connection, other: Columns) -> None:
    together: list[Columns] = [{"entity_key": "order-1"}, {"entity_key": None}, other]
    for changes in together:
        await write(owner, "job", job("running", changes))
    assert await value(owner, "SELECT count(*) FROM outbox.job WHERE status = 'running'") == 3


async def test_an_id_is_drawn_by_the_database_only(connection: Connection) -> None:
    with pytest.raises(errors.GeneratedAlways):
        await insert(connection, id=7)
