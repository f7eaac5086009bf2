-- Takes lanes for an operator: finds their holders as a claim does, and waits for the holders' row locks.
--
-- Comes back with each lane's holder, and whether it could be locked as such. While this waited, another job may have
-- become the holder: the caller asks again, as a statement of its own, until every holder found is the one it locked
-- the time before. Lanes that nobody holds do not come back.
--
-- locks   the holders. Here they are waited for (lock_timeout ends that): a claim has one for the length of one
--         statement, a settle for a transaction. Once it is held, no claim touches a row of the lane, and no settle of
--         the holder gets as far as looking for the next one.
-- index   job_running and job_lane, then job_pkey.
-- order   by id, as settles take them.
WITH head AS MATERIALIZED (
    SELECT l.destination, l.entity_key, coalesce(r.id, h.id) AS id
      FROM unnest(%(destinations)s::text[], %(entity_keys)s::text[]) AS l (destination, entity_key)
      LEFT JOIN LATERAL (
           SELECT j.id
             FROM outbox.job j
            WHERE j.status = 'running' AND j.destination = l.destination AND j.entity_key = l.entity_key
            LIMIT 1
           ) r ON true
      LEFT JOIN LATERAL (
           -- The first row from here on: only job_lane can answer it. See claim.sql.
           SELECT j.id, j.destination, j.entity_key
             FROM outbox.job j
            WHERE j.holds_lane AND j.entity_key IS NOT NULL
              AND (j.destination, j.entity_key, j.id) > (l.destination, l.entity_key, 0)
            ORDER BY j.destination, j.entity_key, j.id
            LIMIT 1
           ) h ON h.destination = l.destination AND h.entity_key = l.entity_key
     WHERE coalesce(r.id, h.id) IS NOT NULL
     ORDER BY coalesce(r.id, h.id)
)
SELECT h.destination, h.entity_key, h.id, locked.id IS NOT NULL AS locked
  FROM head h
  LEFT JOIN LATERAL (
       SELECT j.id FROM outbox.job j WHERE j.id = h.id AND j.holds_lane FOR UPDATE
       ) locked ON true
