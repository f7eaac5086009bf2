-- Dead letters that fit: looks at `width` of them after (after_destination, after_id). Comes back with those that
-- fit, and with the last one looked at where there is more behind it (`more`), from which the next look goes on.
--
-- `error` is what the last attempt says, class and detail. A time or text that is null fits everything.
--
-- locks   none.
-- index   job_dead; attempt_pkey. Asked as "the rows from here on", which job_dead alone can answer: with an equality
--         and an order by id, a planner that misjudges how many are dead walks job_pkey instead.
-- order   destination, id; so id within a lane.
WITH looked AS MATERIALIZED (
    SELECT j.id, j.destination, j.topic, j.entity_key, j.status, j.holds_lane, j.redrive, j.attempts, j.finished_at
      FROM outbox.job j
     WHERE j.status = 'dead' AND (j.destination, j.id) > (%(after_destination)s::text, %(after_id)s::bigint)
     ORDER BY j.destination, j.id
     LIMIT %(width)s
),
described AS MATERIALIZED (
    SELECT l.*, a.error, row_number() OVER (ORDER BY l.destination, l.id) AS place,
           %(destination)s::text IS NULL OR l.destination = %(destination)s::text AS here
      FROM looked l
      LEFT JOIN LATERAL (
           SELECT k.error_class || ': ' || k.detail AS error
             FROM outbox.attempt k
            WHERE k.job_id = l.id
            ORDER BY k.claim DESC
            LIMIT 1
           ) a ON true
)
SELECT d.id, d.destination, d.topic, d.entity_key, d.status, d.holds_lane, d.redrive, d.attempts, d.finished_at, d.error,
       f.fits, d.here AND d.place = %(width)s AS more
  FROM described d
 CROSS JOIN LATERAL (
       SELECT coalesce(
              d.here
              AND (%(topic)s::text IS NULL OR d.topic = %(topic)s::text
                   OR (right(%(topic)s::text, 1) = '*' AND starts_with(d.topic, left(%(topic)s::text, -1))))
              AND (%(entity_key)s::text IS NULL OR d.entity_key = %(entity_key)s::text)
              AND (%(since)s::timestamptz IS NULL OR d.finished_at >= %(since)s::timestamptz)
              AND (%(until)s::timestamptz IS NULL OR d.finished_at <= %(until)s::timestamptz)
              AND (%(error)s::text IS NULL OR strpos(lower(d.error), lower(%(error)s::text)) > 0), false) AS fits
       ) f
 WHERE f.fits OR (d.here AND d.place = %(width)s)
 ORDER BY d.place
