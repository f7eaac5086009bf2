-- Deletes finished jobs past their age, a bounded batch at a time. Dead jobs stay: a person decides.
--
-- locks   SKIP LOCKED: two replicas may clean at once.
-- index   job_finished, then job_pkey.
-- order   oldest first.
WITH deleted AS (
    DELETE FROM outbox.job j
     WHERE j.id = ANY (ARRAY(
           SELECT k.id
             FROM outbox.job k
            WHERE k.status IN ('done', 'discarded') AND k.finished_at < now() - %(age_s)s::float8 * interval '1 s'
            ORDER BY k.finished_at
            LIMIT %(limit)s
              FOR UPDATE SKIP LOCKED))
    RETURNING true
)
SELECT count(*)::integer FROM deleted
