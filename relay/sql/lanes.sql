-- The lanes that wait longest: what their holder is, why it does not move, and how many jobs stand behind it.
--
-- Walks from lane to lane in job_lane, at most `walk` of them, keeps those that have somebody waiting behind the
-- holder or a dead holder, and shows the `show` oldest. Jobs behind are counted up to `cap`.
--
-- locks   none.
-- index   job_lane, one step a lane; job_running for holders that run out of order; job_pkey; destination_pkey.
-- order   the holder's age, oldest first.
WITH RECURSIVE step AS (
    (SELECT 1 AS number, j.destination, j.entity_key, j.id
       FROM outbox.job j
      WHERE j.holds_lane AND j.entity_key IS NOT NULL AND (j.destination, j.entity_key) > ('', '')
      ORDER BY j.destination, j.entity_key, j.id
      LIMIT 1)
     UNION ALL
    SELECT s.number + 1, n.destination, n.entity_key, n.id
      FROM step s
     CROSS JOIN LATERAL (
           SELECT j.destination, j.entity_key, j.id
             FROM outbox.job j
            WHERE j.holds_lane AND j.entity_key IS NOT NULL
              AND (j.destination, j.entity_key) > (s.destination, s.entity_key)
            ORDER BY j.destination, j.entity_key, j.id
            LIMIT 1
           ) n
     WHERE s.number < %(walk)s
),
waiting AS MATERIALIZED (
    -- Look-ups with a LIMIT stay one index step for each lane, whatever the planner thinks of the table.
    SELECT s.destination, s.entity_key, h.*
      FROM step s
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
           SELECT j.id, j.status, j.attempts, j.run_at, j.created_at, j.scheduled_at
             FROM outbox.job j
            WHERE j.id = l.holder_id
            LIMIT 1
           ) h
     WHERE h.status = 'dead' OR l.followed
     ORDER BY h.created_at
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
       extract(epoch FROM now() - coalesce(w.scheduled_at, w.created_at))::float8 AS age_s
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
 ORDER BY w.created_at
