-- The replicas that are connected now, by the names of their connections.
--
-- locks   none.
-- index   none: one row for each connection.
-- order   name.
SELECT substr(a.application_name, 7) AS name, extract(epoch FROM now() - min(a.backend_start))::float8 AS connected_s
  FROM pg_stat_activity a
 WHERE a.datname = current_database() AND a.application_name LIKE 'relay %%-________'
 GROUP BY a.application_name
 ORDER BY a.application_name
