-- Takes a lane for an operator: finds its holder as a claim does, and waits for the holder's row lock.
--
-- No row: nothing holds the lane. While this waited, another job may have become the holder: the caller asks
-- again, as a statement of its own, until the holder found is the one it locked the time before.
--
-- locks   the holder. Here it is waited for (lock_timeout ends that): a claim has it for the length of one
--         statement, a settle for a transaction. Once it is held, no claim touches a row of the lane, and no
--         settle of the holder gets as far as looking for the next one.
-- index   job_running and job_lane, then job_pkey.
WITH head AS MATERIALIZED (
    SELECT coalesce(
           (SELECT j.id
              FROM outbox.job j
             WHERE j.status = 'running' AND j.destination = %(destination)s AND j.entity_key = %(entity_key)s
             LIMIT 1),
           (SELECT h.id
              FROM (SELECT j.id, j.destination, j.entity_key
                      FROM outbox.job j
                     WHERE j.holds_lane AND j.entity_key IS NOT NULL
                       AND (j.destination, j.entity_key, j.id) > (%(destination)s, %(entity_key)s, 0)
                     ORDER BY j.destination, j.entity_key, j.id
                     LIMIT 1) h
             WHERE h.destination = %(destination)s AND h.entity_key = %(entity_key)s)) AS id
)
SELECT h.id, locked.id IS NOT NULL AS locked
  FROM head h
  LEFT JOIN LATERAL (
       SELECT j.id FROM outbox.job j WHERE j.id = h.id AND j.holds_lane FOR UPDATE
       ) locked ON true
 WHERE h.id IS NOT NULL
