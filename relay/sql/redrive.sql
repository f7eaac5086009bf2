-- Makes dead jobs due again, with a new budget and the same key, and keeps who did it; with `delivered`, jobs that
-- are done as well. Followed by settle_lanes.sql.
--
-- A dead job that still holds its lane has nobody before it and nothing has passed it: the lane goes on from here.
-- One of an entity that let go, or was delivered, may have been overtaken: without `force` it stays as it is. With
-- it, it is marked, and the receiver is told. So is every job that was delivered once. `run_at` is now, not what it
-- was: it must lie behind what claims have swept.
--
-- locks   the rows, waited for; their state is looked at again. A dead holder is its lane's mutex; one that let go
--         comes back as a late commit does: what this makes is due, never blocked, so it rings for itself.
-- index   job_pkey.
-- order   by id, as given.
WITH found AS MATERIALIZED (
    SELECT j.id, j.status
      FROM unnest(%(ids)s::bigint[]) AS i (id)
     CROSS JOIN LATERAL (
           SELECT k.id, k.status
             FROM outbox.job k
            WHERE k.id = i.id
              AND (k.status = 'dead' OR (k.status = 'done' AND %(delivered)s::boolean))
              AND (k.holds_lane OR k.entity_key IS NULL OR %(force)s::boolean)
              FOR UPDATE
           ) j
),
redriven AS (
    UPDATE outbox.job j
       SET status = 'pending',
           attempts = 0,
           run_at = now(),
           finished_at = NULL,
           -- As claim.sql says: the snapshot may have had it running.
           locked_by = NULL,
           locked_until = NULL,
           redrive = j.redrive OR j.status = 'done' OR (j.entity_key IS NOT NULL AND NOT j.holds_lane),
           holds_lane = true
     WHERE j.id = ANY (ARRAY(SELECT f.id FROM found f))
    RETURNING j.id, j.destination, j.entity_key, j.redrive
),
kept AS (
    INSERT INTO outbox.operation (actor, verb, job_id, destination, detail)
    SELECT %(actor)s::text, 'redrive', r.id, r.destination,
           jsonb_strip_nulls(jsonb_build_object('was', f.status, 'marked', r.redrive, 'why', %(why)s::text))
      FROM redriven r
      JOIN found f ON f.id = r.id
)
SELECT r.id, r.destination, r.entity_key, r.redrive AS marked FROM redriven r
