-- Takes back jobs whose lease has lapsed: due at once, or dead when their budget is spent. The attempt was
-- counted at the claim, so a job that kills its worker spends its budget too.
--
-- Followed by settle_lanes.sql in the same transaction, like every statement that changes a holder.
--
-- locks   SKIP LOCKED: whoever holds the row is settling, renewing or reclaiming it.
-- index   job_running, walked: it holds only what is in flight. Then job_pkey.
-- order   none needed; `limit` bounds the transaction.
WITH policy AS MATERIALIZED (
    SELECT *
      FROM unnest(%(destinations)s::text[], %(max_attempts)s::integer[], %(blocks)s::boolean[])
           AS p (destination, max_attempts, blocks)
),
lapsed AS MATERIALIZED (
    SELECT j.id, j.locked_by, j.attempts >= coalesce(j.max_attempts, p.max_attempts) AS spent,
           p.blocks AND j.entity_key IS NOT NULL AS blocks
      FROM policy p
     CROSS JOIN LATERAL (
           SELECT k.id, k.locked_by, k.attempts, k.max_attempts, k.entity_key
             FROM outbox.job k
            WHERE k.status = 'running' AND k.destination = p.destination AND k.locked_until < now()
            LIMIT %(limit)s
              FOR UPDATE SKIP LOCKED
           ) j
),
reclaimed AS (
    UPDATE outbox.job j
       SET status = CASE WHEN l.spent THEN 'dead' ELSE 'pending' END,
           run_at = CASE WHEN l.spent THEN j.run_at ELSE now() END,
           finished_at = CASE WHEN l.spent THEN now() END,
           holds_lane = NOT l.spent OR l.blocks,
           locked_by = NULL,
           locked_until = NULL
      FROM lapsed l
     WHERE j.id = l.id
    RETURNING j.id, j.destination, j.entity_key, j.claims, j.attempts, j.status, l.locked_by
),
kept AS (
    INSERT INTO outbox.attempt (job_id, claim, attempt, replica, error_class, detail, duration_s)
    SELECT r.id, r.claims, r.attempts, r.locked_by, 'lease_expired',
           'the lease lapsed before an outcome was written', %(lease_s)s::float8
      FROM reclaimed r
        ON CONFLICT (job_id, claim) DO NOTHING
)
SELECT r.id, r.destination, r.entity_key, r.status, r.locked_by FROM reclaimed r
