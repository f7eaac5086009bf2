-- What is registered.
--
-- locks   none. `relay sync` takes the table lock of registry_lock.sql before it decides on what this says.
-- index   none: a few rows.
-- order   name.
SELECT d.name, d.topics, d.on_dead, d.generation, d.retired_at IS NOT NULL AS retired, d.paused_at IS NOT NULL AS paused
  FROM outbox.destination d
 ORDER BY d.name
