-- The lanes that wait longest: what their holder is, why it does not move, and how many jobs stand behind it.
--
-- Walks from lane to lane in job_lane, at most `walk` of each destination, so that none of them hides those of another;
-- dead holders are found by themselves, for they need a person. Of all these it keeps the lanes that have somebody
-- waiting behind the holder or a dead holder, and shows the `show` oldest. Jobs behind are counted up to `cap`.
--
-- locks   none.
-- index   job_lane, one step a lane; job_standing; job_running for holders that run out of order; job_pkey;
--         destination_pkey.
-- order   the holder's age, oldest first.
WITH RECURSIVE step AS (
    SELECT 1 AS number, n.destination, n.entity_key, n.id
      FROM unnest(%(destinations)s::text[]) AS p (destination)
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
lane AS MATERIALIZED (
    -- One that was met both ways is met by its first job.
    SELECT DISTINCT ON (f.destination, f.entity_key) f.destination, f.entity_key, f.id
      FROM (SELECT s.destination, s.entity_key, s.id FROM step s
             UNION ALL
            SELECT d.destination, d.entity_key, d.id
              FROM unnest(%(destinations)s::text[]) AS p (destination)
             CROSS JOIN LATERAL (
                   SELECT j.destination, j.entity_key, j.id
                     FROM outbox.job j
                    WHERE j.status = 'dead' AND j.holds_lane AND j.destination = p.destination
                    ORDER BY j.id
                    LIMIT %(walk)s
                   ) d) f
     ORDER BY f.destination, f.entity_key, f.id
),
waiting AS MATERIALIZED (
    -- Look-ups with a LIMIT stay one index step for each lane, whatever the planner thinks of the table.
    SELECT s.destination, s.entity_key, h.*
      FROM lane s
     CROSS JOIN LATERAL (
           SELECT coalesce((SELECT r.id
                              FROM outbox.job r
                             WHERE r.status = 'running' AND r.destination = s.destination AND r.entity_key = s.entity_key
                             LIMIT 1), s.id) AS holder_id,
                  (SELECT true
                     FROM outbox.job f
                    WHERE f.holds_lane AND f.entity_key IS NOT NULL
                      AND f.destination = s.destination AND f.entity_key = s.entity_key AND f.id > s.id
                    LIMIT 1) AS followed
           ) l
     CROSS JOIN LATERAL (
           SELECT j.id, j.status, j.attempts, j.run_at, coalesce(j.scheduled_at, j.created_at) AS since
             FROM outbox.job j
            WHERE j.id = l.holder_id
            LIMIT 1
           ) h
     WHERE h.status = 'dead' OR l.followed
     ORDER BY h.since
     LIMIT %(show)s
)
SELECT w.destination, w.entity_key, w.id AS holder,
       CASE WHEN w.status = 'dead' THEN 'dead'
            WHEN w.status = 'running' THEN 'running'
            WHEN d.paused_at IS NOT NULL THEN 'paused'
            WHEN w.run_at > now() AND w.attempts > 0 THEN 'backoff'
            WHEN w.run_at > now() THEN 'scheduled'
            ELSE 'due' END AS why,
       behind.jobs AS behind,
       -- A holder that is scheduled for later has not begun to wait.
       greatest(extract(epoch FROM now() - w.since)::float8, 0) AS age_s
  FROM waiting w
  LEFT JOIN outbox.destination d ON d.name = w.destination
 CROSS JOIN LATERAL (
       SELECT count(*)::integer AS jobs
         FROM (SELECT
                 FROM outbox.job f
                WHERE f.holds_lane AND f.entity_key IS NOT NULL
                  AND f.destination = w.destination AND f.entity_key = w.entity_key AND f.id <> w.id
                LIMIT %(cap)s) c
       ) behind
 ORDER BY w.since
