-- Goes on with lanes whose holder has just finished: starts the next job where `chain` allows, else makes a
-- blocked one due.
--
-- Always a statement of its own after the one that changed the holder, in the same transaction: it needs a
-- snapshot younger than that row lock, or it can miss what a claim blocked meanwhile, and strand it.
--
-- locks   the new holder. A blocked one is waited for, since nothing else would ever wake it; a claim may hold
--         it for a moment. After the wait the row is looked at again.
-- index   job_running and job_lane for the holder, then job_pkey.
-- order   lanes as given; the caller sorts them.
WITH lane AS MATERIALIZED (
    SELECT *
      FROM unnest(%(destinations)s::text[], %(entity_keys)s::text[], %(chains)s::boolean[])
           AS l (destination, entity_key, chain)
),
holder AS MATERIALIZED (
    SELECT l.chain, h.id
      FROM lane l
     CROSS JOIN LATERAL (
           -- The first row from here on: only job_lane can answer it. See claim.sql.
           SELECT j.id, j.destination, j.entity_key
             FROM outbox.job j
            WHERE j.holds_lane AND j.entity_key IS NOT NULL
              AND (j.destination, j.entity_key, j.id) > (l.destination, l.entity_key, 0)
            ORDER BY j.destination, j.entity_key, j.id
            LIMIT 1
           ) h
     WHERE h.destination = l.destination
       AND h.entity_key = l.entity_key
       AND NOT EXISTS (SELECT
                         FROM outbox.job r
                        WHERE r.status = 'running' AND r.destination = l.destination AND r.entity_key = l.entity_key)
),
batch AS MATERIALIZED (
    SELECT ARRAY(SELECT h.id FROM holder h) AS ids,
           ARRAY(SELECT h.id
                   FROM holder h
                  WHERE h.chain
                    AND NOT EXISTS (SELECT
                                      FROM outbox.job j
                                      JOIN outbox.destination d ON d.name = j.destination
                                     WHERE j.id = h.id AND d.paused_at IS NOT NULL)) AS chain_ids
)
UPDATE outbox.job j
   SET status = CASE WHEN j.id = ANY (b.chain_ids) AND j.run_at <= now() THEN 'running' ELSE 'pending' END,
       locked_by = CASE WHEN j.id = ANY (b.chain_ids) AND j.run_at <= now() THEN %(locked_by)s END,
       locked_until = CASE WHEN j.id = ANY (b.chain_ids) AND j.run_at <= now()
                           THEN now() + %(lease_s)s::float8 * interval '1 s' END,
       claims = j.claims + (j.id = ANY (b.chain_ids) AND j.run_at <= now())::integer,
       attempts = j.attempts + (j.id = ANY (b.chain_ids) AND j.run_at <= now())::integer,
       run_at = greatest(j.run_at, now())
  FROM batch b
 WHERE j.id = ANY (b.ids)
   AND (j.status = 'blocked' OR (j.status = 'pending' AND j.id = ANY (b.chain_ids) AND j.run_at <= now()))
RETURNING j.id, j.destination, j.topic, j.entity_key, j.idempotency_key,
              coalesce(j.content_type, 'application/json') AS content_type,
          CASE j.status WHEN 'running' THEN coalesce(convert_to(j.payload::text, 'UTF8'), j.body) END AS body,
          j.headers, j.attempts, j.claims, j.max_attempts, -- A producer may write anything here, and it stands outside the byte budget. No legal value is longer.
              CASE WHEN octet_length(j.traceparent) > 512 THEN '' ELSE j.traceparent END AS traceparent,
              CASE WHEN octet_length(j.tracestate) <= 8192 THEN j.tracestate END AS tracestate, j.redrive,
          extract(epoch FROM now() - coalesce(j.scheduled_at, j.created_at))::float8 AS waited_s,
          j.status = 'running' AS started
