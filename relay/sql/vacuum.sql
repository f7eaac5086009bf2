-- What keeps vacuum from removing dead rows, for how long, and how many the job table has.
--
-- `held_s` is the age of the oldest transaction, prepared ones included, and `held_transactions` how many have begun
-- since vacuum's horizon, which a replication slot can hold too. Of other users' sessions a role sees nothing here
-- unless it is a member of pg_read_all_stats or pg_monitor; of slots and prepared transactions it sees all.
-- A standby with hot_standby_feedback and no slot holds it by its walsender. A VACUUM holds back no other, however long
-- it runs.
--
-- locks   none.
-- index   none: one row for each connection, slot and prepared transaction.
SELECT coalesce(extract(epoch FROM clock_timestamp() - min(h.since)), 0)::float8 AS held_s,
       coalesce(max(age(h.horizon)), 0)::integer AS held_transactions,
       pg_stat_get_dead_tuples('outbox.job'::regclass) AS dead_tuples
  FROM (SELECT a.xact_start AS since, a.backend_xmin AS horizon
          FROM pg_stat_activity a
         WHERE a.backend_xmin IS NOT NULL AND a.pid <> pg_backend_pid()
           AND (a.datname = current_database() OR a.backend_type = 'walsender')
           AND NOT EXISTS (SELECT FROM pg_stat_progress_vacuum v WHERE v.pid = a.pid)
         UNION ALL
        SELECT p.prepared, p.transaction FROM pg_prepared_xacts p WHERE p.database = current_database()
         UNION ALL
        SELECT NULL, s.xmin FROM pg_replication_slots s WHERE s.xmin IS NOT NULL
       ) h
