-- Discards dead letters, and keeps who did it.
--
-- Between lock_lanes.sql and settle_lanes.sql in one transaction. A dead letter that holds its lane need not be the
-- lane's holder: a lower id may have been committed late and run. With the lock of the dead row alone, a settle of
-- that one would find the dead row next and wake nobody, while this one still sees the other running; see cancel.sql.
--
-- locks   the rows, behind their lanes' holders. Their state is looked at again.
-- index   job_pkey. Without IS TRUE a planner may take the index of dead letters, and read all dead letters for a few.
-- order   none needed: the holders were locked before.
WITH discarded AS (
    UPDATE outbox.job j
       SET status = 'discarded', holds_lane = false, finished_at = now()
     WHERE j.id = ANY (%(ids)s::bigint[]) AND (j.status = 'dead') IS TRUE
    RETURNING j.id, j.destination, j.entity_key
),
kept AS (
    INSERT INTO outbox.operation (actor, verb, job_id, destination, detail)
    SELECT %(actor)s::text, 'discard', d.id, d.destination,
           jsonb_strip_nulls(jsonb_build_object('was', 'dead', 'why', %(why)s::text))
      FROM discarded d
)
SELECT d.id, d.destination, d.entity_key, false AS marked FROM discarded d
