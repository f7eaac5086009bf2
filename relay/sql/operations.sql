-- What was done to jobs and destinations, and by whom: the newest `width` that fit. Null fits everything.
--
-- Three questions in one, of which two are not asked: a plan that serves every parameter would read all there is for
-- the few of one job.
--
-- locks   none.
-- index   operation_job, operation_destination or operation_pkey, read backwards.
-- order   newest first.
SELECT found.*
  FROM ((SELECT o.id, o.at, o.actor, o.verb, o.destination, o.job_id, o.detail
           FROM outbox.operation o
          WHERE o.job_id = %(job_id)s::bigint
            AND (%(destination)s::text IS NULL OR o.destination = %(destination)s::text)
          ORDER BY o.id DESC
          LIMIT %(width)s)
         UNION ALL
        (SELECT o.id, o.at, o.actor, o.verb, o.destination, o.job_id, o.detail
           FROM outbox.operation o
          WHERE %(job_id)s::bigint IS NULL AND o.destination = %(destination)s::text
          ORDER BY o.id DESC
          LIMIT %(width)s)
         UNION ALL
        (SELECT o.id, o.at, o.actor, o.verb, o.destination, o.job_id, o.detail
           FROM outbox.operation o
          WHERE %(job_id)s::bigint IS NULL AND %(destination)s::text IS NULL
          ORDER BY o.id DESC
          LIMIT %(width)s)) found
 ORDER BY found.id DESC
 LIMIT %(width)s
