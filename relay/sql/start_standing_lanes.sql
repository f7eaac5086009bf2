-- A destination that changed its policy from block to skip: its dead jobs let go of their lanes, a bounded
-- batch at a time. Followed by settle_lanes.sql in the same transaction.
--
-- locks   the dead rows, SKIP LOCKED: one that somebody holds keeps no other lane standing, and is found again.
-- index   job_standing, then job_pkey.
-- order   none needed; `limit` bounds the transaction.
UPDATE outbox.job j
   SET holds_lane = false
 WHERE j.id = ANY (ARRAY(
       SELECT k.id
         FROM outbox.job k
        WHERE k.status = 'dead' AND k.destination = ANY (%(destinations)s) AND k.holds_lane
        LIMIT %(limit)s
          FOR UPDATE SKIP LOCKED))
   -- What was not dead yet when the statement began is left for the next time; see claim.sql.
   AND (j.status = 'dead') IS TRUE
RETURNING j.destination, j.entity_key
