-- The first due row of each range that has one: of every destination that is not paused, each priority, first attempts
-- and retries. It tells where there is work, at one step for each range that has pending rows, however many
-- destinations have none.
--
-- locks   none: what a claim holds at this moment is due for others too.
-- index   job_due, in steps from the first row of one range to the first of the next. Of rows that vacuum could not
--         remove yet, every step passes over those in front of its row; nothing else in the relay does.
-- order   that of the index.
WITH RECURSIVE front AS (
    (SELECT j.destination, j.priority, j.attempts > 0 AS retries, j.run_at, j.id
       FROM outbox.job j
      WHERE j.status = 'pending'
      ORDER BY j.destination, j.priority, (j.attempts > 0), j.run_at, j.id
      LIMIT 1)
     UNION ALL
    SELECT n.*
      FROM front f
     CROSS JOIN LATERAL (
           SELECT j.destination, j.priority, j.attempts > 0 AS retries, j.run_at, j.id
             FROM outbox.job j
            WHERE j.status = 'pending'
              AND (j.destination, j.priority, (j.attempts > 0)) > (f.destination, f.priority, f.retries)
            ORDER BY j.destination, j.priority, (j.attempts > 0), j.run_at, j.id
            LIMIT 1
           ) n
)
SELECT f.destination, f.priority, f.retries, f.run_at, f.id
  FROM front f
 WHERE f.run_at <= now()
   AND NOT EXISTS (SELECT FROM outbox.destination d WHERE d.name = f.destination AND d.paused_at IS NOT NULL)
