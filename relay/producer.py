"""For applications: what makes a driver insert jobs, in a transaction that is the caller's.

Nothing here connects, executes or commits, and importing it imports only the standard library.

    with connection.transaction():
        connection.execute("UPDATE orders SET status = 'paid' WHERE id = %s", (42,))
        connection.execute(*producer.psycopg(Job("order.paid", '{"order_id": 42}', entity_key="order-42")))
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, LiteralString

if TYPE_CHECKING:
    from sqlalchemy import TextClause

# One array for each column of Job, in its order; the same statement for any number of jobs.
_INSERT = """
INSERT INTO outbox.job (topic, payload, entity_key, destination, body, content_type, headers, idempotency_key,
                        run_at, priority, max_attempts, traceparent, tracestate)
SELECT j.topic, j.payload::json, j.entity_key, j.destination, j.body, j.content_type, j.headers::jsonb,
       j.idempotency_key, j.run_at, j.priority, j.max_attempts, j.traceparent, j.tracestate
  FROM unnest("""
_ORDERED = """)
  WITH ORDINALITY AS j (topic, payload, entity_key, destination, body, content_type, headers, idempotency_key,
                        run_at, priority, max_attempts, traceparent, tracestate, place)
 ORDER BY j.place
RETURNING id"""

_PSYCOPG: LiteralString = (
    _INSERT
    + """
       %s::text[], %s::text[], %s::text[], %s::text[], %s::bytea[], %s::text[], %s::text[], %s::text[],
       %s::timestamptz[], %s::smallint[], %s::integer[], %s::text[], %s::text[]"""
    + _ORDERED
)
_ASYNCPG: LiteralString = (
    _INSERT
    + """
       $1::text[], $2::text[], $3::text[], $4::text[], $5::bytea[], $6::text[], $7::text[], $8::text[],
       $9::timestamptz[], $10::smallint[], $11::integer[], $12::text[], $13::text[]"""
    + _ORDERED
)
_SQLALCHEMY: LiteralString = (
    _INSERT
    + """
       CAST(:topic AS text[]), CAST(:payload AS text[]), CAST(:entity_key AS text[]), CAST(:destination AS text[]),
       CAST(:body AS bytea[]), CAST(:content_type AS text[]), CAST(:headers AS text[]),
       CAST(:idempotency_key AS text[]), CAST(:run_at AS timestamptz[]), CAST(:priority AS smallint[]),
       CAST(:max_attempts AS integer[]), CAST(:traceparent AS text[]), CAST(:tracestate AS text[])"""
    + _ORDERED
)


@dataclass(frozen=True, slots=True)
class Job:
    """One event, with the columns of `schema/README.md`; None means what NULL means there.

    `payload` is JSON text and is stored and sent as it is. Where neither `traceparent` nor `tracestate` is given,
    they are those of OpenTelemetry's current span, if there is one when the statement is built.
    """

    topic: str
    payload: str | None = None
    entity_key: str | None = None
    destination: str | None = None
    body: bytes | None = None
    content_type: str | None = None
    headers: Mapping[str, str] | None = None
    idempotency_key: str | None = None
    run_at: datetime | None = None
    priority: int | None = None
    max_attempts: int | None = None
    traceparent: str | None = None
    tracestate: str | None = None

    def __post_init__(self) -> None:
        """Refuses what the drivers would say in their own words, or would misunderstand."""
        if self.payload is not None and not isinstance(self.payload, str):
            raise TypeError(
                f"payload of {self.topic!r} is the JSON text that is to be sent, not {type(self.payload).__name__}; "
                "pass json.dumps(…)"
            )
        if self.payload is None and self.body is None:
            raise ValueError(f"{self.topic!r} has neither payload nor body; pass one")
        if self.payload is not None and self.body is not None:
            raise ValueError(f"{self.topic!r} has both payload and body; pass one")
        if self.run_at is not None and self.run_at.utcoffset() is None:
            raise ValueError(f"run_at of {self.topic!r} has no time zone: {self.run_at}; pass datetime(…, tzinfo=…)")


def psycopg(*jobs: Job) -> tuple[LiteralString, list[list[object]]]:
    """The arguments of psycopg's `execute`, of a sync or async connection or cursor.

    Rows: for each job, in order, the id of its row, or with several subscribers of the first one's.
    """
    return _PSYCOPG, _columns(jobs)


def asyncpg(*jobs: Job) -> tuple[object, ...]:
    """The arguments of asyncpg's `fetch`; rows as for `psycopg`."""
    return _ASYNCPG, *_columns(jobs)


def sqlalchemy(*jobs: Job) -> "tuple[TextClause, dict[str, list[object]]]":
    """The arguments of SQLAlchemy's `execute`, of a Connection, Session or their async kin; rows as for `psycopg`."""
    from sqlalchemy import text  # noqa: PLC0415 - whoever calls this has it already; others need not have it

    return text(_SQLALCHEMY), dict(zip(Job.__slots__, _columns(jobs), strict=True))


def _columns(jobs: tuple[Job, ...]) -> list[list[object]]:
    if not jobs:
        raise ValueError("no job to insert: pass at least one")
    rows = [_row(each) for each in _traced(jobs)]
    return [list(column) for column in zip(*rows, strict=True)]


def _row(job: Job) -> list[object]:
    values = {name: getattr(job, name) for name in Job.__slots__}
    values["headers"] = None if job.headers is None else json.dumps(dict(job.headers))
    return list(values.values())


def _traced(jobs: tuple[Job, ...]) -> list[Job]:
    # A program that has not imported OpenTelemetry has no current span: no need to import it to ask.
    trace = sys.modules.get("opentelemetry.trace")
    here = trace.get_current_span().get_span_context() if trace else None
    if here is None or not here.is_valid:
        return list(jobs)
    # https://www.w3.org/TR/trace-context/#traceparent-header
    traceparent = f"00-{here.trace_id:032x}-{here.span_id:016x}-{here.trace_flags:02x}"
    tracestate = here.trace_state.to_header() or None
    return [
        replace(job, traceparent=traceparent, tracestate=tracestate)
        if job.traceparent is None and job.tracestate is None
        else job
        for job in jobs
    ]
