-- Deletes dead letters that are still past their age, where the operator has set one.
--
-- Between lock_lanes.sql and settle_lanes.sql in one transaction, for the reason that discard.sql has.
--
-- locks   the rows, behind their lanes' holders. Their state is looked at again.
-- index   job_pkey. Without IS TRUE a planner may take an index of dead letters; see discard.sql.
-- order   none needed: the holders were locked before.
DELETE FROM outbox.job j
 WHERE j.id = ANY (%(ids)s::bigint[]) AND (j.status = 'dead') IS TRUE
   AND (j.finished_at < now() - %(age_s)s::float8 * interval '1 s') IS TRUE
RETURNING j.destination, j.entity_key
