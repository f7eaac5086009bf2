-- How many jobs that run fit a selection of waiting.sql; stops at `cap`.
--
-- locks   none.
-- index   job_running. As many rows as there are requests on their way.
SELECT count(*)::integer
  FROM (SELECT
          FROM outbox.job j
         WHERE j.status = 'running'
           AND (%(destination)s::text IS NULL OR j.destination = %(destination)s::text)
           AND (%(topic)s::text IS NULL OR j.topic = %(topic)s::text
                OR (right(%(topic)s::text, 1) = '*' AND starts_with(j.topic, left(%(topic)s::text, -1))))
           AND (%(entity_key)s::text IS NULL OR j.entity_key = %(entity_key)s::text)
           AND (%(since)s::timestamptz IS NULL OR j.created_at >= %(since)s::timestamptz)
           AND (%(until)s::timestamptz IS NULL OR j.created_at <= %(until)s::timestamptz)
         LIMIT %(cap)s) c
