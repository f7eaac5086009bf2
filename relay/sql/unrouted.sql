-- How many jobs wait because nobody subscribed to their topic; stops at `cap`.
--
-- locks   none.
-- index   job_unrouted.
SELECT count(*)::integer FROM (SELECT FROM outbox.job j WHERE j.status = 'unrouted' LIMIT %(cap)s) c
