-- Which migrations the database has.
--
-- locks   none.
-- index   none: a row for each migration.
-- order   version, as relay.migration.judge wants them.
SELECT m.version, m.name, m.checksum, m.old_replicas_may_run FROM outbox.migration m ORDER BY m.version
