"""A table as large as a bad day leaves it, or as small as a good one, of the same shape."""

import psycopg

# With `claims` above zero the checks of the input stand aside, so a million rows are written in seconds.
_FILL = """
SET session_replication_role = replica;
SET synchronous_commit = off;
SET maintenance_work_mem = '256MB';

INSERT INTO outbox.job (destination, topic, entity_key, idempotency_key, payload, claims, status, holds_lane,
                        run_at, locked_by, locked_until, finished_at)
SELECT r.destination, 't', r.entity_key, 'k', '{{}}', 1, r.status,
       r.status <> 'done' AND r.destination <> 'skipped',
       now() + r.due,
       CASE r.status WHEN 'running' THEN CASE r.destination WHEN 'lapsed' THEN 'gone' ELSE 'first' END END,
       CASE r.status WHEN 'running'
            THEN now() + CASE r.destination WHEN 'lapsed' THEN -1 ELSE 1 END * interval '1 d' END,
       CASE WHEN r.status IN ('done', 'dead') THEN now() + r.due END
  FROM (
-- Due, without an entity.
SELECT 'plain' AS destination, NULL AS entity_key, 'pending' AS status, n * interval '-1 ms' - interval '1 h' AS due
  FROM generate_series(1, 7 * {many}) n
 UNION ALL
-- Due, each the first of its lane; two waiting behind every tenth.
SELECT 'lanes', 'e' || n, 'pending', n * interval '-1 ms' - interval '1 h' FROM generate_series(1, 2 * {many}) n
 UNION ALL
SELECT 'lanes', 'e' || n, 'blocked', interval '0'
  FROM generate_series(1, 2 * {many}, 10) n, generate_series(1, 2)
 UNION ALL
-- Lanes whose head waits for its retry.
SELECT 'backoff', 'e' || n, 'pending', n * interval '1 ms' + interval '1 d' FROM generate_series(1, {many}) n
 UNION ALL
SELECT 'backoff', 'e' || n, 'blocked', interval '0' FROM generate_series(1, {many}, 2) n
 UNION ALL
-- One entity with very many jobs, the first of them due.
SELECT 'hot', 'hot', CASE n WHEN 1 THEN 'pending' ELSE 'blocked' END, interval '0' FROM generate_series(1, 2 * {many}) n
 UNION ALL
-- In flight: without an entity, and lanes with one more behind.
SELECT 'plain', NULL, 'running', interval '0' FROM generate_series(1, 64)
 UNION ALL
SELECT 'flight', 'e' || n, 'running', interval '0' FROM generate_series(1, 64) n
 UNION ALL
SELECT 'flight', 'e' || n, 'blocked', interval '0' FROM generate_series(1, 64) n
 UNION ALL
-- Leases that have lapsed.
SELECT 'lapsed', 'e' || n, 'running', interval '0' FROM generate_series(1, 16) n
 UNION ALL
SELECT 'plain', NULL, 'done', n * interval '-1 ms' - interval '2 d' FROM generate_series(1, {many}) n
 UNION ALL
-- Dead letters, whose lanes stand or were let go of.
SELECT destination, 'e' || n, 'dead', interval '0'
  FROM generate_series(1, {many} / 10 + 16) n, unnest('{{dead,skipped}}'::text[]) destination
       ) r;
INSERT INTO outbox.attempt (job_id, claim, attempt, failed_at, replica, error_class, detail, duration_s)
SELECT n, 1, 1, now() - interval '2 d', 'first', 'status', 'answered 503', 0.1 FROM generate_series(1, {many}) n;
-- What was done to jobs, few of them of one destination.
INSERT INTO outbox.operation (actor, verb, job_id, destination)
SELECT 'ada', 'redrive', n, CASE n % 1000 WHEN 1 THEN 'dead' ELSE 'plain' END FROM generate_series(1, {many}) n;
INSERT INTO outbox.destination (name, topics)
SELECT n, '{{t}}' FROM unnest('{{plain,lanes,backoff,hot,flight,lapsed,dead,skipped}}'::text[]) n;
"""

_SECONDARY = """
SELECT indexdef, indexname FROM pg_catalog.pg_indexes
 WHERE schemaname = 'outbox' AND tablename = 'job' AND indexname <> 'job_pkey'
"""


def freeze(connection: psycopg.Connection) -> None:
    """What autovacuum learns in the middle of a test would be another test."""
    connection.execute("ALTER TABLE outbox.job SET (autovacuum_enabled = off)")
    connection.execute("ALTER TABLE outbox.attempt SET (autovacuum_enabled = off)")
    connection.execute("ALTER TABLE outbox.operation SET (autovacuum_enabled = off)")


def fill(dsn: str, many: int) -> None:
    """Writes about fourteen times `many` jobs, ten times `many` of them pending, and analyses the tables."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        freeze(connection)
        found = connection.execute(_SECONDARY.encode()).fetchall()
        for _, name in found:
            connection.execute(f"DROP INDEX outbox.{name}".encode())
        fill_unseen(connection, many)
        for definition, _ in found:
            connection.execute(definition)
        connection.execute("VACUUM (ANALYZE) outbox.job, outbox.attempt, outbox.operation, outbox.destination")


def fill_unseen(connection: psycopg.Connection, many: int) -> None:
    """Writes the same jobs in a way that leaves what is known of the tables as it was."""
    connection.execute(_FILL.format(many=many).encode())
