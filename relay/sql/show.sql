-- Jobs by id with all that their waiting depends on: the lane's holder and its last failure, the destination,
-- how many of their kind, first attempts or retries, are due before them (stops at `cap`), and the last thing a
-- person did to them.
--
-- locks   none.
-- index   job_pkey; job_running and job_lane for the holder; attempt_pkey, job_due, operation_job.
-- order   id.
SELECT j.id, j.destination, j.topic, j.entity_key, j.idempotency_key, j.status, j.priority,
       j.attempts, j.claims, j.max_attempts, j.holds_lane, j.redrive,
       j.created_at, j.scheduled_at, j.run_at, j.finished_at, j.locked_by, j.locked_until,
       coalesce(j.content_type, 'application/json') AS content_type, j.traceparent,
       coalesce(octet_length(j.payload::text), octet_length(j.body)) AS body_bytes,
       extract(epoch FROM j.run_at - now())::float8 AS due_in_s,
       extract(epoch FROM j.locked_until - now())::float8 AS lease_left_s,
       d.name IS NOT NULL AND d.retired_at IS NULL AS registered, d.paused_why,
       ahead.jobs AS ahead,
       h.id, h.status, h.attempts, h.max_attempts, extract(epoch FROM h.run_at - now())::float8,
       h.locked_by, h.finished_at, h.detail,
       o.at, o.actor, o.verb, o.detail ->> 'why'
  FROM outbox.job j
  LEFT JOIN outbox.destination d ON d.name = j.destination
  LEFT JOIN LATERAL (
       SELECT coalesce(
              (SELECT r.id
                 FROM outbox.job r
                WHERE r.status = 'running' AND r.destination = j.destination AND r.entity_key = j.entity_key
                LIMIT 1),
              (SELECT f.id
                 FROM (SELECT k.id, k.destination, k.entity_key
                         FROM outbox.job k
                        WHERE k.holds_lane AND k.entity_key IS NOT NULL
                          AND (k.destination, k.entity_key, k.id) > (j.destination, j.entity_key, 0)
                        ORDER BY k.destination, k.entity_key, k.id
                        LIMIT 1) f
                WHERE f.destination = j.destination AND f.entity_key = j.entity_key)) AS id
       ) head ON j.holds_lane AND j.entity_key IS NOT NULL
  LEFT JOIN LATERAL (
       SELECT k.id, k.status, k.attempts, k.max_attempts, k.run_at, k.locked_by, k.finished_at,
              (SELECT a.detail FROM outbox.attempt a WHERE a.job_id = k.id ORDER BY a.claim DESC LIMIT 1) AS detail
         FROM outbox.job k
        WHERE k.id = head.id
       ) h ON true
 CROSS JOIN LATERAL (
       SELECT count(*) AS jobs
         FROM (SELECT
                 FROM outbox.job k
                WHERE j.status = 'pending' AND k.status = 'pending' AND k.destination = j.destination
                  AND k.priority = j.priority AND (k.attempts > 0) = (j.attempts > 0)
                  AND k.run_at <= now() AND (k.run_at, k.id) < (j.run_at, j.id)
                LIMIT %(cap)s) c) ahead
  LEFT JOIN LATERAL (
       SELECT p.at, p.actor, p.verb, p.detail
         FROM outbox.operation p
        WHERE p.job_id = j.id
        ORDER BY p.id DESC
        LIMIT 1
       ) o ON true
 WHERE j.id = ANY (%(ids)s)
 ORDER BY j.id
