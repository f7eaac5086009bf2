-- A safety net that should never find anything: lanes whose first job is blocked while none of the lane runs.
--
-- Walks from lane to lane in job_lane, `limit` lanes at a time, from where the last walk stopped, so that an
-- entity with a million jobs costs one step. Comes back with the stranded lanes, and with the last lane of a
-- full walk (`more`), from which the next one goes on.
--
-- locks   none; the caller wakes the lanes with settle_lanes.sql.
-- index   job_lane, then job_running.
-- order   destination, entity_key.
WITH RECURSIVE walk AS (
    (SELECT 1 AS step, j.destination, j.entity_key, j.status
       FROM outbox.job j
      WHERE j.holds_lane AND j.entity_key IS NOT NULL
        AND (j.destination, j.entity_key) > (%(after_destination)s::text, %(after_entity_key)s::text)
      ORDER BY j.destination, j.entity_key, j.id
      LIMIT 1)
     UNION ALL
    SELECT w.step + 1, n.destination, n.entity_key, n.status
      FROM walk w
     CROSS JOIN LATERAL (
           SELECT j.destination, j.entity_key, j.status
             FROM outbox.job j
            WHERE j.holds_lane AND j.entity_key IS NOT NULL
              AND (j.destination, j.entity_key) > (w.destination, w.entity_key)
            ORDER BY j.destination, j.entity_key, j.id
            LIMIT 1
           ) n
     WHERE w.step < %(limit)s
)
SELECT w.destination, w.entity_key, s.stranded, w.step = %(limit)s AS more
  FROM walk w
 CROSS JOIN LATERAL (
       SELECT w.status = 'blocked'
              AND NOT EXISTS (SELECT
                                FROM outbox.job r
                               WHERE r.status = 'running'
                                 AND r.destination = w.destination AND r.entity_key = w.entity_key) AS stranded
       ) s
 WHERE s.stranded OR w.step = %(limit)s
 ORDER BY w.step
