-- Extends the leases of jobs still in flight on this replica; comes back with those it extended.
--
-- fence   (locked_by, claims), as in settle.sql.
-- locks   SKIP LOCKED: a claim may hold a holder for a moment, and a lease has time for the next round. So a
--         row that does not come back is not yet a lost lease; lost.sql tells.
-- index   job_pkey. locked_until is in no index, so the new version stays on its page and touches none.
-- order   by id, as given.
WITH held AS MATERIALIZED (
    SELECT j.id
      FROM unnest(%(ids)s::bigint[], %(claims)s::integer[]) AS h (id, claims)
     CROSS JOIN LATERAL (
           SELECT k.id
             FROM outbox.job k
            WHERE k.id = h.id AND k.claims = h.claims AND k.locked_by = %(locked_by)s
              FOR UPDATE SKIP LOCKED
           ) j
)
UPDATE outbox.job j
   SET locked_until = now() + %(lease_s)s::float8 * interval '1 s'
 WHERE j.id = ANY (ARRAY(SELECT h.id FROM held h))
RETURNING j.id
