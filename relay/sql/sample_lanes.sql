-- Lanes that stand still with jobs behind them: how many for each destination and reason, how many jobs wait there,
-- and the age of the oldest holder.
--
-- Dead holders are found by themselves, for they need a person. The others are looked for in the first `walk` lanes of
-- each destination, so that none of them hides those of another. Jobs behind are counted up to `cap` a lane.
--
-- locks   none.
-- index   job_standing; job_lane, one step a lane; job_running for holders that run out of order; job_pkey.
-- order   none.
WITH RECURSIVE place AS MATERIALIZED (
    SELECT p.destination, d.paused_at IS NOT NULL AS paused
      FROM unnest(%(destinations)s::text[]) AS p (destination)
      LEFT JOIN outbox.destination d ON d.name = p.destination
),
step AS (
    SELECT 1 AS number, n.destination, n.entity_key, n.id
      FROM place p
     CROSS JOIN LATERAL (
           SELECT j.destination, j.entity_key, j.id
             FROM outbox.job j
            WHERE j.holds_lane AND j.entity_key IS NOT NULL AND j.destination = p.destination
            ORDER BY j.destination, j.entity_key, j.id
            LIMIT 1
           ) n
     UNION ALL
    SELECT s.number + 1, n.destination, n.entity_key, n.id
      FROM step s
     CROSS JOIN LATERAL (
           SELECT j.destination, j.entity_key, j.id
             FROM outbox.job j
            WHERE j.holds_lane AND j.entity_key IS NOT NULL
              AND j.destination = s.destination AND j.entity_key > s.entity_key
            ORDER BY j.destination, j.entity_key, j.id
            LIMIT 1
           ) n
     WHERE s.number < %(walk)s
),
holder AS MATERIALIZED (
    -- Look-ups with a LIMIT stay one index step for each lane, whatever the planner thinks of the table.
    SELECT h.destination, h.entity_key, h.id, coalesce(h.scheduled_at, h.created_at) AS since,
           CASE WHEN h.attempts > 0 THEN 'backoff' ELSE 'scheduled' END AS reason,
           h.run_at > now() AS later
      FROM step s
     CROSS JOIN LATERAL (
           SELECT coalesce((SELECT r.id
                              FROM outbox.job r
                             WHERE r.status = 'running' AND r.destination = s.destination AND r.entity_key = s.entity_key
                             LIMIT 1), s.id) AS id
           ) l
     CROSS JOIN LATERAL (
           SELECT j.id, j.destination, j.entity_key, j.status, j.attempts, j.run_at, j.created_at, j.scheduled_at
             FROM outbox.job j
            WHERE j.id = l.id
            LIMIT 1
           ) h
     WHERE h.status = 'pending'
     UNION ALL
    SELECT d.destination, d.entity_key, d.id, d.since, 'dead', true
      FROM place p
     CROSS JOIN LATERAL (
           SELECT j.destination, j.entity_key, j.id, coalesce(j.scheduled_at, j.created_at) AS since
             FROM outbox.job j
            WHERE j.status = 'dead' AND j.holds_lane AND j.destination = p.destination
            ORDER BY j.id
            LIMIT %(walk)s
           ) d
)
SELECT h.destination,
       CASE WHEN p.paused AND h.reason <> 'dead' THEN 'paused' ELSE h.reason END AS reason,
       count(*)::integer AS lanes, sum(behind.jobs)::integer AS behind,
       -- A holder that is scheduled for later has not begun to wait.
       greatest(extract(epoch FROM now() - min(h.since))::float8, 0) AS oldest_age_s
  FROM holder h
  JOIN place p ON p.destination = h.destination
 CROSS JOIN LATERAL (
       SELECT count(*) AS jobs
         FROM (SELECT
                 FROM outbox.job f
                WHERE f.holds_lane AND f.entity_key IS NOT NULL
                  AND f.destination = h.destination AND f.entity_key = h.entity_key AND f.id > h.id
                LIMIT %(cap)s) c
       ) behind
 WHERE behind.jobs > 0 AND (h.later OR p.paused)
 GROUP BY 1, 2
