-- Dead letters past their age, at most `limit`, each with its lane.
--
-- locks   none; retain_dead.sql looks again.
-- index   job_died.
-- order   oldest first.
SELECT j.id, j.destination, j.entity_key
  FROM outbox.job j
 WHERE j.status = 'dead' AND j.finished_at < now() - %(age_s)s::float8 * interval '1 s'
 ORDER BY j.finished_at
 LIMIT %(limit)s
