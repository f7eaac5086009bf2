-- What was done to jobs and destinations, and by whom: the newest `width` that fit. Null fits everything.
--
-- locks   none.
-- index   operation_destination, operation_job or operation_pkey, read backwards.
-- order   newest first.
SELECT o.id, o.at, o.actor, o.verb, o.destination, o.job_id, o.detail
  FROM outbox.operation o
 WHERE (%(destination)s::text IS NULL OR o.destination = %(destination)s::text)
   AND (%(job_id)s::bigint IS NULL OR o.job_id = %(job_id)s::bigint)
 ORDER BY o.id DESC
 LIMIT %(width)s
