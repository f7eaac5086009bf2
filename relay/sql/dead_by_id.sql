-- Jobs by id, whatever their status, as dead.sql describes dead letters.
--
-- locks   none.
-- index   job_pkey; attempt_pkey.
-- order   destination, id; so id within a lane.
SELECT j.id, j.destination, j.topic, j.entity_key, j.status, j.holds_lane, j.redrive, j.attempts, j.finished_at, a.error
  FROM outbox.job j
  LEFT JOIN LATERAL (
       SELECT k.error_class || ': ' || k.detail AS error
         FROM outbox.attempt k
        WHERE k.job_id = j.id
        ORDER BY k.claim DESC
        LIMIT 1
       ) a ON true
 WHERE j.id = ANY (%(ids)s::bigint[])
 ORDER BY j.destination, j.id
