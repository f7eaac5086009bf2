-- Which of these leases are no longer ours: a plain read, since a row that is merely locked is not lost.
--
-- locks   none.
-- index   job_pkey.
-- order   as given.
SELECT h.id
  FROM unnest(%(ids)s::bigint[], %(claims)s::integer[]) AS h (id, claims)
 WHERE NOT EXISTS (SELECT
                     FROM outbox.job j
                    WHERE j.id = h.id AND j.claims = h.claims AND j.locked_by = %(locked_by)s)
