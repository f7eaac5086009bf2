-- Jobs that wait and fit: looks at `width` of them from a place on. Comes back with those that fit, and with the last
-- one looked at where there is more behind it (`more`), whose columns are the place from which the next look goes on.
--
-- `walk` says which: `lanes` those of entities, each entity's in the order of their ids; `due` those without an entity;
-- `unrouted` those without a destination. What an operator's own hand moves meanwhile, from blocked to pending, stays
-- where it is in its walk. A time is that of the insert; a filter that is null fits everything.
--
-- locks   none.
-- index   job_lane, job_due or job_unrouted. Asked as "the rows from here on", for the reason that dead.sql has.
-- order   that of the index. As text, `run_at` is exact, whatever year a producer asked for.
WITH looked AS MATERIALIZED (
    (SELECT j.*, row_number() OVER (ORDER BY j.destination, j.entity_key, j.id) AS place
       FROM outbox.job j
      WHERE %(walk)s::text = 'lanes' AND j.holds_lane AND j.entity_key IS NOT NULL
        AND (j.destination, j.entity_key, j.id)
            > (%(after_destination)s::text, %(after_entity_key)s::text, %(after_id)s::bigint)
      ORDER BY j.destination, j.entity_key, j.id
      LIMIT %(width)s)
     UNION ALL
    (SELECT j.*, row_number() OVER (ORDER BY j.destination, j.priority, (j.attempts > 0), j.run_at, j.id) AS place
       FROM outbox.job j
      WHERE %(walk)s::text = 'due' AND j.status = 'pending'
        AND (j.destination, j.priority, (j.attempts > 0), j.run_at, j.id)
            > (%(after_destination)s::text, %(after_priority)s::smallint, %(after_retry)s::boolean,
               %(after_run_at)s::timestamptz, %(after_id)s::bigint)
      ORDER BY j.destination, j.priority, (j.attempts > 0), j.run_at, j.id
      LIMIT %(width)s)
     UNION ALL
    (SELECT j.*, row_number() OVER (ORDER BY j.id) AS place
       FROM outbox.job j
      WHERE %(walk)s::text = 'unrouted' AND j.status = 'unrouted' AND j.id > %(after_id)s::bigint
      ORDER BY j.id
      LIMIT %(width)s)
)
SELECT l.id, l.destination, l.topic, l.entity_key, l.status, l.holds_lane, l.redrive, l.attempts, l.finished_at,
       NULL AS error, f.fits, h.here AND l.place = %(width)s AS more, l.priority, l.attempts > 0 AS retry,
       l.run_at::text AS run_at
  FROM looked l
 CROSS JOIN LATERAL (
       -- Whether the walk is still where the filters are; the entity is a place in it only within a destination.
       SELECT %(destination)s::text IS NULL
              OR (l.destination = %(destination)s::text
                  AND (%(entity_key)s::text IS NULL OR l.entity_key IS NOT DISTINCT FROM %(entity_key)s::text)) AS here
       ) h
 CROSS JOIN LATERAL (
       SELECT coalesce(
              h.here
              AND l.status IN ('pending', 'blocked', 'unrouted')
              AND (%(walk)s::text <> 'due' OR l.entity_key IS NULL)
              AND (%(topic)s::text IS NULL OR l.topic = %(topic)s::text
                   OR (right(%(topic)s::text, 1) = '*' AND starts_with(l.topic, left(%(topic)s::text, -1))))
              AND (%(entity_key)s::text IS NULL OR l.entity_key = %(entity_key)s::text)
              AND (%(since)s::timestamptz IS NULL OR l.created_at >= %(since)s::timestamptz)
              AND (%(until)s::timestamptz IS NULL OR l.created_at <= %(until)s::timestamptz), false) AS fits
       ) f
 WHERE f.fits OR (h.here AND l.place = %(width)s)
 ORDER BY l.place
