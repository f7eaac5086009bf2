-- Discards one job that waits, failed for good, or was never routed; comes back with what it was before.
--
-- Between lock_lanes.sql and settle_lanes.sql in one transaction. With the lock of this row alone the lane would
-- strand: a settle of the holder that looks for the next job sees this one still blocked, waits for its lock,
-- finds it discarded, and leaves those behind it asleep, while the cancel sees the holder still running.
--
-- locks   the row. A claim that holds it for a moment is waited for; then its state is looked at again.
-- index   job_pkey.
WITH found AS MATERIALIZED (
    SELECT j.id, j.status
      FROM outbox.job j
     WHERE j.id = %(id)s AND j.status IN ('pending', 'blocked', 'dead', 'unrouted')
       AND j.destination IS NOT DISTINCT FROM %(destination)s
       FOR UPDATE
)
UPDATE outbox.job j
   SET status = 'discarded', holds_lane = false, finished_at = now(), locked_by = NULL, locked_until = NULL
  FROM found f
 WHERE j.id = f.id
RETURNING f.status
