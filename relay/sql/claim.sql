-- Claims jobs for the free slots of each destination: at most one for each lane, and only the lane's holder.
--
-- A lane is (destination, entity key). Its holder is its running job, else its lowest id that holds the lane.
-- The holder's row lock is the lane's mutex. A settle takes it by updating the job it ran; a claim takes it
-- with SKIP LOCKED. Either the claim has it first, then the settle waits for this statement's commit and its
-- second statement sees what was blocked here; or the settle has it, then nothing of the lane is touched here
-- and its due jobs stay in the index for the next claim. So nothing is ever stranded.
--
-- locks   due rows and holders, FOR UPDATE SKIP LOCKED: a claim never waits for a row. The one wait left is on
--         job_running, when a lower id of the lane committed late and another claim starts the lane's other
--         job at this moment; lock_timeout ends it, and the claim is tried again.
-- index   job_due, one range for each destination, priority, and first attempts or retries; job_running and
--         job_lane to find holders; then job_pkey, by arrays: a join with the lists themselves is planned as a
--         scan of the table, because LIMIT with a parameter is guessed at a tenth of the rows.
-- order   run_at, id within a range; ranges in the order they were given. Of a destination at most `retries_free`
--         of what is started was tried before.
--
-- Each UPDATE writes every column of the state, though the rows it has locked have most of them already: PostgreSQL
-- checks constraints on what would become of the row as the snapshot had it, perhaps finished or running, before it
-- notices that there is a newer one.
--
-- One row for each job started, and one, with a null id, for each range that had due rows: how many were
-- looked at and the last of them, from which a wider window goes on.
WITH range AS MATERIALIZED (
    SELECT r.*
      FROM unnest(%(destinations)s::text[], %(priorities)s::smallint[], %(retries)s::boolean[], %(frees)s::integer[],
                  %(retries_free)s::integer[], %(windows)s::integer[], %(after_run_at)s::timestamptz[],
                  %(after_id)s::bigint[], %(shares)s::bigint[])
           WITH ORDINALITY AS r (destination, priority, retries, free, retries_free, width, after_run_at, after_id,
                                 share, turn)
     WHERE NOT EXISTS (SELECT FROM outbox.destination d WHERE d.name = r.destination AND d.paused_at IS NOT NULL)
),
doorbell AS MATERIALIZED (
    SELECT r.turn, r.free, r.retries_free, r.share, j.*
      FROM range r
     CROSS JOIN LATERAL (
           SELECT d.id, d.destination, d.entity_key, d.run_at, d.attempts > 0 AS retry,
                  pg_column_size(d.payload) AS payload_bytes, pg_column_size(d.body) AS body_bytes
             FROM outbox.job d
            WHERE d.status = 'pending'
              AND d.destination = r.destination
              AND d.priority = r.priority
              AND (d.attempts > 0) = r.retries
              AND d.run_at <= now()
              AND (d.run_at, d.id) > (coalesce(r.after_run_at, '-infinity'), r.after_id)
            ORDER BY d.run_at, d.id
            LIMIT r.width
              FOR UPDATE SKIP LOCKED
           ) j
),
lane AS MATERIALIZED (
    SELECT d.destination, d.entity_key, min(d.turn) AS turn, min(d.free) AS free,
           min(d.retries_free) AS retries_free, min(d.share) AS share
      FROM doorbell d
     WHERE d.entity_key IS NOT NULL
     GROUP BY d.destination, d.entity_key
),
head AS MATERIALIZED (
    SELECT l.*, coalesce(r.id, h.id) AS id, r.id IS NOT NULL AS was_running
      FROM lane l
      LEFT JOIN LATERAL (
           SELECT j.id
             FROM outbox.job j
            WHERE j.status = 'running' AND j.destination = l.destination AND j.entity_key = l.entity_key
            LIMIT 1
           ) r ON true
      LEFT JOIN LATERAL (
           -- Asked as "the first row from here on", which job_lane alone can answer; asked with equalities,
           -- a planner that misjudges the lane walks job_pkey instead. It may find the next lane's row,
           -- which the lock below refuses.
           SELECT j.id
             FROM outbox.job j
            WHERE j.holds_lane AND j.entity_key IS NOT NULL
              AND (j.destination, j.entity_key, j.id) > (l.destination, l.entity_key, 0)
            ORDER BY j.destination, j.entity_key, j.id
            LIMIT 1
           ) h ON true
),
holder AS MATERIALIZED (
    -- The lock looks again: what comes back is the row as it is now, not as the snapshot had it. What was the
    -- holder because it ran is the holder only while it runs: a lower job may have been committed meanwhile.
    SELECT h.turn, h.free, h.retries_free, h.share, j.*,
           j.status <> 'running' AND j.status <> 'dead' AND j.run_at <= now() AS can_run
      FROM head h
     CROSS JOIN LATERAL (
           SELECT k.id, k.destination, k.entity_key, k.status, k.run_at, k.attempts > 0 AS retry,
                  pg_column_size(k.payload) AS payload_bytes, pg_column_size(k.body) AS body_bytes
             FROM outbox.job k
            WHERE k.id = h.id
              AND k.holds_lane
              AND k.destination = h.destination
              AND k.entity_key = h.entity_key
              AND (k.status = 'running' OR NOT h.was_running)
              FOR UPDATE SKIP LOCKED
           ) j
),
candidate AS MATERIALIZED (
    SELECT c.id,
           c.allowed
           AND c.place <= c.free
           -- Both, so that the payloads of one destination never take the room of another.
           AND sum(c.bytes) FILTER (WHERE c.allowed AND c.place <= c.free)
                   OVER (PARTITION BY c.destination ORDER BY c.turn, c.run_at, c.id) <= c.share
           AND sum(c.bytes) FILTER (WHERE c.allowed AND c.place <= c.free)
                   OVER (ORDER BY c.turn, c.run_at, c.id) <= %(payload_bytes)s::bigint AS fits
      FROM (SELECT a.*, count(*) FILTER (WHERE a.allowed)
                            OVER (PARTITION BY a.destination ORDER BY a.turn, a.run_at, a.id) AS place
              FROM (SELECT u.*, NOT u.retry OR row_number() OVER (PARTITION BY u.destination, u.retry
                                ORDER BY u.turn, u.run_at, u.id) <= u.retries_free AS allowed
                      FROM (SELECT d.id, d.destination, d.turn, d.free, d.retries_free, d.share, d.run_at, d.retry,
                                   coalesce(d.payload_bytes, d.body_bytes) AS bytes
                              FROM doorbell d
                             WHERE d.entity_key IS NULL
                             UNION ALL
                            SELECT h.id, h.destination, h.turn, h.free, h.retries_free, h.share, h.run_at, h.retry,
                                   coalesce(h.payload_bytes, h.body_bytes) AS bytes
                              FROM holder h
                             WHERE h.can_run
                           ) u
                   ) a
           ) c
),
batch AS MATERIALIZED (
    SELECT ARRAY(SELECT c.id FROM candidate c WHERE c.fits) AS start_ids,
           ARRAY(SELECT d.id
                   FROM doorbell d
                   JOIN holder h ON h.destination = d.destination AND h.entity_key = d.entity_key
                  WHERE d.id <> h.id) AS block_ids,
           -- Nobody would wake a blocked holder that found no slot: what stands behind it is blocked here.
           ARRAY(SELECT h.id
                   FROM holder h
                   JOIN candidate c ON c.id = h.id
                  WHERE h.status = 'blocked' AND NOT c.fits) AS unblock_ids
),
started AS (
    UPDATE outbox.job j
       SET status = 'running',
           holds_lane = true,
           finished_at = NULL,
           locked_by = %(locked_by)s,
           locked_until = now() + %(lease_s)s::float8 * interval '1 s',
           claims = j.claims + 1,
           attempts = j.attempts + 1
      FROM batch b
     WHERE j.id = ANY (b.start_ids)
    RETURNING j.id, j.destination, j.topic, j.entity_key, j.idempotency_key,
              coalesce(j.content_type, 'application/json') AS content_type,
              coalesce(convert_to(j.payload::text, 'UTF8'), j.body) AS body, j.headers,
              j.attempts, j.claims, j.max_attempts, -- A producer may write anything here, and it stands outside the byte budget. No legal value is longer.
              CASE WHEN octet_length(j.traceparent) > 512 THEN '' ELSE j.traceparent END AS traceparent,
              CASE WHEN octet_length(j.tracestate) <= 8192 THEN j.tracestate END AS tracestate, j.redrive,
              extract(epoch FROM now() - coalesce(j.scheduled_at, j.created_at))::float8 AS waited_s
),
blocked AS (
    UPDATE outbox.job j
       SET status = 'blocked', holds_lane = true, finished_at = NULL, locked_by = NULL, locked_until = NULL
      FROM batch b
     WHERE j.id = ANY (b.block_ids)
),
unblocked AS (
    UPDATE outbox.job j
       SET status = 'pending', run_at = now(),
           holds_lane = true, finished_at = NULL, locked_by = NULL, locked_until = NULL
      FROM batch b
     WHERE j.id = ANY (b.unblock_ids)
)
SELECT s.*, NULL::smallint AS priority, NULL::integer AS looked, NULL::timestamptz AS last_run_at,
       NULL::bigint AS last_id, NULL::boolean AS retries
  FROM started s
 UNION ALL
SELECT NULL, r.destination, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       r.priority, seen.looked, seen.last_run_at, seen.last_id, r.retries
  FROM range r
  JOIN (SELECT d.turn, count(*)::integer AS looked, max(d.run_at) AS last_run_at,
               (array_agg(d.id ORDER BY d.run_at DESC, d.id DESC))[1] AS last_id
          FROM doorbell d
         GROUP BY d.turn
       ) seen ON seen.turn = r.turn
