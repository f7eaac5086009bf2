-- How many jobs wait in their lanes behind these; stops at `cap` for each. Only jobs that hold their lane come back.
--
-- locks   none.
-- index   job_pkey, then job_lane.
-- order   none.
SELECT j.id, b.jobs
  FROM outbox.job j
 CROSS JOIN LATERAL (
       SELECT count(*)::integer AS jobs
         FROM (SELECT
                 FROM outbox.job k
                WHERE k.holds_lane AND k.entity_key IS NOT NULL
                  AND k.destination = j.destination AND k.entity_key = j.entity_key AND k.id > j.id
                LIMIT %(cap)s) c
       ) b
 WHERE j.id = ANY (%(ids)s::bigint[]) AND j.holds_lane AND j.entity_key IS NOT NULL
