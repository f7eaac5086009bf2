-- Puts a new sample in the place of the last.
--
-- locks   the row, under the lock of sample_lock.sql: nobody waits for it.
-- index   sample_pkey.
INSERT INTO outbox.sample (latest, taken_at, taken_by, gauges)
VALUES (true, now(), %(locked_by)s, %(gauges)s)
    ON CONFLICT (latest) DO UPDATE
       SET taken_at = excluded.taken_at, taken_by = excluded.taken_by, gauges = excluded.gauges
