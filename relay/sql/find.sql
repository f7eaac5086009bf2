-- The ids of jobs with an idempotency key, among all that are unfinished or dead and the newest `cap` of all.
-- `complete` says whether that was the whole table.
--
-- No index on the key, on purpose: every change of a job's status would write to it as well. Measured on 18 with
-- 200,000 jobs of 400 bytes, inserted, claimed and settled: 1,639 bytes of WAL a job instead of 1,287. A question
-- that an operator has now and then reads more instead; it stops at `cap` rows for each index.
--
-- locks   none.
-- index   job_pkey from its end, job_due, job_running, job_lane, job_dead, job_unrouted. Each has its order
--         stated, or a planner that expects many rows would scan the table for a few.
-- order   id.
WITH newest AS MATERIALIZED (
    SELECT j.id, j.idempotency_key FROM outbox.job j ORDER BY j.id DESC LIMIT %(cap)s
),
found AS (
    SELECT n.id FROM newest n WHERE n.idempotency_key = %(key)s
     UNION
    SELECT u.id
      FROM ((SELECT j.id, j.idempotency_key FROM outbox.job j WHERE j.status = 'pending'
              ORDER BY j.destination, j.priority, (j.attempts > 0), j.run_at, j.id LIMIT %(cap)s)
             UNION ALL
            (SELECT j.id, j.idempotency_key FROM outbox.job j WHERE j.status = 'running'
              ORDER BY j.destination, j.entity_key LIMIT %(cap)s)
             UNION ALL
            (SELECT j.id, j.idempotency_key FROM outbox.job j WHERE j.holds_lane AND j.entity_key IS NOT NULL
              ORDER BY j.destination, j.entity_key, j.id LIMIT %(cap)s)
             UNION ALL
            (SELECT j.id, j.idempotency_key FROM outbox.job j WHERE j.status = 'dead'
              ORDER BY j.destination, j.id LIMIT %(cap)s)
             UNION ALL
            (SELECT j.id, j.idempotency_key FROM outbox.job j WHERE j.status = 'unrouted'
              ORDER BY j.id LIMIT %(cap)s)) u
     WHERE u.idempotency_key = %(key)s
)
SELECT ARRAY(SELECT f.id FROM found f ORDER BY f.id LIMIT %(most)s) AS ids,
       (SELECT count(*) FROM newest) < %(cap)s AS complete
