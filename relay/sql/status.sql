-- One row for each destination that is registered or has unfinished jobs: what waits, runs, stands and failed.
--
-- Of those that are not registered, the first 100 by name: a producer may have made up any number of them, and each
-- costs some 60 pages.
--
-- Every count stops at `cap`, so the cost does not grow with the table; a count of `cap` means "or more". Blocked jobs
-- have no index of their own: they are counted among the first `cap` of all that hold their lanes, and `blocked_more`
-- says that there are further ones. The rate is that of the newest 2,000 finished jobs, of all destinations, at most of
-- a minute.
--
-- locks   none.
-- index   one each: job_due, job_running, job_lane, job_dead, job_standing, job_finished; names are found by stepping
--         from one to the next in job_due, job_running and job_dead.
-- order   name.
WITH RECURSIVE step AS (
    SELECT '' AS name
     UNION ALL
    SELECT (SELECT least(
                (SELECT j.destination FROM outbox.job j
                  WHERE j.status = 'pending' AND j.destination > s.name ORDER BY j.destination LIMIT 1),
                (SELECT j.destination FROM outbox.job j
                  WHERE j.status = 'running' AND j.destination > s.name ORDER BY j.destination LIMIT 1),
                (SELECT j.destination FROM outbox.job j
                  WHERE j.status = 'dead' AND j.destination > s.name ORDER BY j.destination LIMIT 1)))
      FROM step s
     WHERE s.name IS NOT NULL
),
finished AS MATERIALIZED (
    SELECT f.destination, count(*) FILTER (WHERE f.status = 'done') AS jobs,
           -- Where the limit cuts the minute short, what is left of it is the span, for all destinations.
           CASE WHEN sum(count(*)) OVER () < 2000 THEN interval '1 minute'
                ELSE now() - min(min(f.finished_at)) OVER () END AS span
      FROM (SELECT j.destination, j.finished_at, j.status
              FROM outbox.job j
             WHERE j.status IN ('done', 'discarded') AND j.finished_at > now() - interval '1 minute'
             ORDER BY j.finished_at DESC
             LIMIT 2000) f
     GROUP BY f.destination
)
SELECT n.name, d.name IS NOT NULL AS registered, d.retired_at IS NOT NULL AS retired, d.paused_why,
       due.jobs AS due, extract(epoch FROM greatest(due.oldest_age, heads.oldest_age))::float8 AS oldest_due_age_s,
       later.jobs AS later, running.jobs AS running, lanes.blocked AS blocked, lanes.more AS blocked_more,
       dead.jobs AS dead, standing.jobs AS standing_lanes,
       coalesce(f.jobs / greatest(1.0, extract(epoch FROM f.span)), 0)::float8 AS done_per_s
  FROM (SELECT r.name FROM outbox.destination r
         UNION ALL
        (SELECT s.name FROM step s
          WHERE s.name <> '' AND s.name NOT IN (SELECT r.name FROM outbox.destination r)
          LIMIT 100)) n
  LEFT JOIN outbox.destination d ON d.name = n.name
  LEFT JOIN finished f ON f.destination = n.name
 CROSS JOIN LATERAL (
       SELECT count(*) AS jobs, max(now() - coalesce(c.scheduled_at, c.created_at)) AS oldest_age
         FROM (SELECT j.scheduled_at, j.created_at
                 FROM unnest('{0,1,2,3}'::smallint[]) AS level (priority)
                CROSS JOIN unnest('{f,t}'::boolean[]) AS kind (retries)
                CROSS JOIN LATERAL (
                      SELECT k.scheduled_at, k.created_at
                        FROM outbox.job k
                       WHERE k.status = 'pending' AND k.destination = n.name AND k.priority = level.priority
                         AND (k.attempts > 0) = kind.retries AND k.run_at <= now()
                       ORDER BY k.run_at, k.id
                       LIMIT %(cap)s) j
                LIMIT %(cap)s) c) due
 CROSS JOIN LATERAL (
       -- A count that stops early has not seen the later ranges: a retry, or a low priority, may wait for longest.
       SELECT max(now() - coalesce(j.scheduled_at, j.created_at)) AS oldest_age
         FROM unnest('{0,1,2,3}'::smallint[]) AS level (priority)
        CROSS JOIN unnest('{f,t}'::boolean[]) AS kind (retries)
        CROSS JOIN LATERAL (
              SELECT k.scheduled_at, k.created_at
                FROM outbox.job k
               WHERE k.status = 'pending' AND k.destination = n.name AND k.priority = level.priority
                 AND (k.attempts > 0) = kind.retries AND k.run_at <= now()
               ORDER BY k.run_at, k.id
               LIMIT 1) j) heads
 CROSS JOIN LATERAL (
       SELECT count(*) AS jobs
         FROM (SELECT
                 FROM unnest('{0,1,2,3}'::smallint[]) AS level (priority)
                CROSS JOIN unnest('{f,t}'::boolean[]) AS kind (retries)
                CROSS JOIN LATERAL (
                      SELECT
                        FROM outbox.job k
                       WHERE k.status = 'pending' AND k.destination = n.name AND k.priority = level.priority
                         AND (k.attempts > 0) = kind.retries AND k.run_at > now()
                       LIMIT %(cap)s) j
                LIMIT %(cap)s) c) later
 CROSS JOIN LATERAL (
       SELECT count(*) AS jobs
         FROM (SELECT FROM outbox.job j WHERE j.status = 'running' AND j.destination = n.name LIMIT %(cap)s) c) running
 CROSS JOIN LATERAL (
       SELECT count(*) FILTER (WHERE c.status = 'blocked') AS blocked, count(*) = %(cap)s AS more
         FROM (SELECT j.status
                 FROM outbox.job j
                WHERE j.holds_lane AND j.entity_key IS NOT NULL AND j.destination = n.name
                ORDER BY j.destination, j.entity_key, j.id
                LIMIT %(cap)s) c) lanes
 CROSS JOIN LATERAL (
       SELECT count(*) AS jobs
         FROM (SELECT FROM outbox.job j WHERE j.status = 'dead' AND j.destination = n.name LIMIT %(cap)s) c) dead
 CROSS JOIN LATERAL (
       SELECT count(*) AS jobs
         FROM (SELECT
                 FROM outbox.job j
                WHERE j.status = 'dead' AND j.holds_lane AND j.destination = n.name
                LIMIT %(cap)s) c) standing
 ORDER BY n.name
