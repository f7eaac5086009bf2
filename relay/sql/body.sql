-- What some jobs send: the bytes, and the producer's headers.
--
-- locks   none.
-- index   job_pkey.
-- order   id.
SELECT j.id, coalesce(convert_to(j.payload::text, 'UTF8'), j.body) AS body, j.headers
  FROM outbox.job j
 WHERE j.id = ANY (%(ids)s)
 ORDER BY j.id
