-- Whether this replica may take the sample now; held until the end of the transaction, and never waited for.
--
-- locks   an advisory lock of the transaction, so that it works through a pooler. Its number is that of `relay
--         migrate` and one more.
-- index   none.
SELECT pg_try_advisory_xact_lock(122550254464889)
