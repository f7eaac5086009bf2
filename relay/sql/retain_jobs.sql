-- Deletes finished jobs past their age, a bounded batch at a time, and says where to go on: not before `after`, since
-- what earlier batches deleted stays in the index until vacuum, for as long as any transaction holds that back.
--
-- locks   SKIP LOCKED: it waits for nobody, and two replicas may clean at once. Claims and settles do not touch a
--         finished row; a redrive of one waits for this transaction, which is one batch.
-- index   job_finished, then job_pkey.
-- order   oldest first.
WITH deleted AS (
    DELETE FROM outbox.job j
     WHERE j.id = ANY (ARRAY(
           SELECT k.id
             FROM outbox.job k
            WHERE k.status IN ('done', 'discarded') AND k.finished_at >= coalesce(%(after)s::timestamptz, '-infinity')
              AND k.finished_at < now() - %(age_s)s::float8 * interval '1 s'
            ORDER BY k.finished_at
            LIMIT %(limit)s
              FOR UPDATE SKIP LOCKED))
    RETURNING j.finished_at
)
SELECT count(*)::integer, max(d.finished_at) FROM deleted d
