-- Whether this replica may take the sample now; held until the end of the transaction, and never waited for.
--
-- The sample's statements walk an index up to a LIMIT. A table that was never analysed looks so small to the planner
-- that a bitmap of all its rows seems to cost less, so bitmaps are off until the end of the transaction.
--
-- locks   an advisory lock of the transaction, so that it works through a pooler. Its number is that of `relay
--         migrate` and one more.
-- index   none.
SELECT pg_try_advisory_xact_lock(122550254464889) FROM set_config('enable_bitmapscan', 'off', true)
