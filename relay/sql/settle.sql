-- Writes what became of a batch of attempts, and keeps the failed ones. Without `keep_done` a delivered job is deleted
-- in place of being written once more, which spares the database that version and the retention of it.
--
-- fence   (locked_by, claims): `claims` only grows, and `locked_by` is new at every process start, so a late
--         result can not match a newer claim. `attempts` would not do: it is given back. What does not come
--         back was lost to a reclaim; the caller counts it.
-- locks   the rows this replica runs. A claim that holds one for a moment is waited for: it may be blocking
--         the lane's next job behind this row, which the statement after this one must see.
-- index   job_pkey, from the arrays. `locked_by` is set only while a job runs; asked for the status as well, a
--         planner may walk all of job_running, and with it what vacuum has not removed yet.
-- order   by id, as the caller sorts the arrays, so that two settles that meet do not deadlock.
WITH result AS MATERIALIZED (
    SELECT *
      FROM unnest(%(ids)s::bigint[], %(claims)s::integer[], %(statuses)s::text[], %(delays_s)s::float8[],
                  %(charged)s::boolean[], %(holds_lane)s::boolean[])
           AS r (id, claims, status, delay_s, charged, holds_lane)
),
settled AS (
    UPDATE outbox.job j
       SET status = r.status,
           run_at = CASE r.status WHEN 'pending' THEN now() + r.delay_s * interval '1 s' ELSE j.run_at END,
           finished_at = CASE r.status WHEN 'pending' THEN NULL ELSE now() END,
           holds_lane = r.holds_lane,
           attempts = j.attempts - (NOT r.charged)::integer,
           locked_by = NULL,
           locked_until = NULL
      FROM result r
     WHERE j.id = r.id
       AND j.claims = r.claims
       AND j.locked_by = %(locked_by)s
       AND (r.status <> 'done' OR %(keep_done)s::boolean)
    RETURNING j.id, j.claims
),
deleted AS (
    DELETE FROM outbox.job j
     USING result r
     WHERE j.id = r.id
       AND j.claims = r.claims
       AND j.locked_by = %(locked_by)s
       AND r.status = 'done' AND NOT %(keep_done)s::boolean
    RETURNING j.id, j.claims
),
kept AS (
    INSERT INTO outbox.attempt (job_id, claim, attempt, replica, error_class, detail, status, duration_s, response,
                                trace_id)
    SELECT f.job_id, f.claim, f.attempt, %(locked_by)s, f.error_class, f.detail, f.status, f.duration_s, f.response,
           f.trace_id
      FROM unnest(%(failed_ids)s::bigint[], %(failed_claims)s::integer[], %(failed_attempts)s::integer[],
                  %(error_classes)s::text[], %(details)s::text[], %(http_statuses)s::integer[],
                  %(durations_s)s::float8[], %(responses)s::bytea[], %(trace_ids)s::text[])
           AS f (job_id, claim, attempt, error_class, detail, status, duration_s, response, trace_id)
      JOIN settled s ON s.id = f.job_id AND s.claims = f.claim
        -- A table restored without the other one may hold such a row; it must not keep an outcome from being written.
        ON CONFLICT (job_id, claim) DO NOTHING
)
SELECT s.id, s.claims FROM settled s
 UNION ALL
SELECT d.id, d.claims FROM deleted d
