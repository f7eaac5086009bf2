-- The latest sample, and how old it is; no row before the first.
--
-- A statement of its own after sample_lock.sql, so that it sees what the last holder of the lock has committed.
--
-- locks   none.
-- index   none: at most one row.
SELECT extract(epoch FROM now() - s.taken_at)::float8 AS age_s, s.gauges FROM outbox.sample s
