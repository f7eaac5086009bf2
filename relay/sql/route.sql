-- Sends unrouted jobs on to those who subscribe by now, and keeps who did it: looks at `width` of them after the id
-- `after`. With `dry_run` nothing is changed. One row for each job looked at: who gets it, or nobody.
--
-- A job that becomes due is found by its own entry in job_due, as a late commit is; settle_lanes.sql need not follow.
--
-- locks   by outbox.route_unrouted: the rows, waited for.
-- index   job_unrouted, then job_pkey; destination_topics.
-- order   id.
WITH looked AS MATERIALIZED (
    SELECT j.id, j.topic
      FROM outbox.job j
     WHERE j.status = 'unrouted' AND j.id > %(after)s
     ORDER BY j.id
     LIMIT %(width)s
),
wanted AS MATERIALIZED (
    SELECT l.id, outbox.subscribers(l.topic) AS names
      FROM looked l
     WHERE %(topic)s::text IS NULL OR l.topic = %(topic)s::text
        OR (right(%(topic)s::text, 1) = '*' AND starts_with(l.topic, left(%(topic)s::text, -1)))
),
routed AS MATERIALIZED (
    SELECT r.id, r.destinations
      FROM outbox.route_unrouted(ARRAY(SELECT w.id
                                         FROM wanted w
                                        WHERE cardinality(w.names) > 0 AND NOT %(dry_run)s::boolean)) AS r
),
kept AS (
    INSERT INTO outbox.operation (actor, verb, job_id, destination, detail)
    SELECT %(actor)s::text, 'route', r.id, r.destinations[1], jsonb_build_object('destinations', r.destinations)
      FROM routed r
)
SELECT l.id, w.id IS NOT NULL AS asked_for, CASE WHEN %(dry_run)s::boolean THEN w.names ELSE r.destinations END AS names
  FROM looked l
  LEFT JOIN wanted w ON w.id = l.id
  LEFT JOIN routed r ON r.id = l.id
 ORDER BY l.id
