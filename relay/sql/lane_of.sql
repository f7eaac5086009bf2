-- The lane of a job; neither half ever changes once it is set.
--
-- locks   none.
-- index   job_pkey.
SELECT j.destination, j.entity_key, j.status FROM outbox.job j WHERE j.id = %(id)s
