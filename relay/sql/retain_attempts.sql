-- Deletes failed attempts past their age, a bounded batch at a time, and says where to go on; see retain_jobs.sql.
--
-- locks   SKIP LOCKED: two replicas may clean at once.
-- index   attempt_failed_at, then attempt_pkey.
-- order   oldest first.
WITH deleted AS (
    DELETE FROM outbox.attempt a
     USING (SELECT b.job_id, b.claim
              FROM outbox.attempt b
             WHERE b.failed_at >= coalesce(%(after)s::timestamptz, '-infinity')
               AND b.failed_at < now() - %(age_s)s::float8 * interval '1 s'
             ORDER BY b.failed_at
             LIMIT %(limit)s
               FOR UPDATE SKIP LOCKED) old
     WHERE a.job_id = old.job_id AND a.claim = old.claim
    RETURNING a.failed_at
)
SELECT count(*)::integer, max(d.failed_at) FROM deleted d
