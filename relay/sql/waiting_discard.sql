-- Discards jobs that wait, many at once, and keeps who did it.
--
-- Between lock_lanes.sql and settle_lanes.sql in one transaction, for the reason that cancel.sql has.
--
-- locks   the rows, behind their lanes' holders. A claim that holds one for a moment is waited for; then its state is
--         looked at again, and what runs is left.
-- index   job_pkey.
-- order   by id, as given: jobs without an entity have no holder that was locked before.
WITH found AS MATERIALIZED (
    SELECT j.id, j.status
      FROM unnest(%(ids)s::bigint[]) AS i (id)
     CROSS JOIN LATERAL (
           SELECT k.id, k.status
             FROM outbox.job k
            WHERE k.id = i.id
              -- One that is routed meanwhile has a lane that nobody locked.
              AND CASE WHEN %(unrouted)s::boolean THEN k.status = 'unrouted' ELSE k.status IN ('pending', 'blocked') END
              FOR UPDATE
           ) j
),
discarded AS (
    UPDATE outbox.job j
       SET status = 'discarded',
           holds_lane = false,
           finished_at = now(),
           -- As claim.sql says: the snapshot may have had it running.
           locked_by = NULL,
           locked_until = NULL
     WHERE j.id = ANY (ARRAY(SELECT f.id FROM found f))
    RETURNING j.id, j.destination, j.entity_key
),
kept AS (
    INSERT INTO outbox.operation (actor, verb, job_id, destination, detail)
    SELECT %(actor)s::text, 'cancel', d.id, d.destination,
           jsonb_strip_nulls(jsonb_build_object('was', f.status, 'why', %(why)s::text))
      FROM discarded d
      JOIN found f ON f.id = d.id
)
SELECT d.id, d.destination, d.entity_key, false AS marked FROM discarded d
