-- The failed attempts of some jobs that are still kept.
--
-- locks   none.
-- index   attempt_pkey.
-- order   job, then the order in which they were made.
SELECT a.job_id, a.claim, a.attempt, a.failed_at, a.replica, a.error_class, a.status, a.duration_s, a.detail,
       a.trace_id, substr(a.response, 1, %(response_bytes)s::integer) AS response
  FROM outbox.attempt a
 WHERE a.job_id = ANY (%(ids)s)
 ORDER BY a.job_id, a.claim
