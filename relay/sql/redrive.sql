-- Makes dead jobs due again, with a new budget and the same key. Followed by settle_lanes.sql.
--
-- A dead job that still holds its lane has nobody before it and nothing has passed it: the lane goes on from here.
-- One that let go may have been overtaken, so without `force` it stays dead; with it, it is marked, and the receiver
-- is told. `run_at` is now, not what it was: it must lie behind what claims have swept.
--
-- locks   the rows. A dead holder is its lane's mutex; one that let go comes back as a late commit does.
-- index   job_pkey.
-- order   by id, as given.
UPDATE outbox.job j
   SET status = 'pending',
       attempts = 0,
       run_at = now(),
       finished_at = NULL,
       redrive = j.redrive OR (j.entity_key IS NOT NULL AND NOT j.holds_lane),
       holds_lane = true
 WHERE j.id = ANY (%(ids)s::bigint[])
   AND j.status = 'dead'
   AND (j.holds_lane OR j.entity_key IS NULL OR %(force)s::boolean)
RETURNING j.id, j.destination, j.entity_key
