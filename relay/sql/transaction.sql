-- The settings of one transaction, whatever the role's defaults are, in a form that a transaction pooler keeps.
--
-- Every statement is prepared, and has one good plan: left to itself PostgreSQL plans a claim or a settle anew at almost
-- every execution, since arrays of another length look like another cost; that takes longer than the statement.
--
-- That plan is made of index scans. One that was made while the table was empty outlives the first burst: with a scan
-- of the table in it, every claim would read all of it. A bitmap reads all that fits before the first row comes out,
-- however few are asked for. JIT costs more than any statement here. search_path is not used, so it must not be
-- trusted.
--
-- From PostgreSQL 17 on, transaction_timeout ends a transaction whose client has fallen silent, and lets go of its
-- rows. Between two messages of a pipeline no other limit counts, neither statement_timeout nor
-- idle_in_transaction_session_timeout; the rows would stay locked until the server notices that the client is gone,
-- two hours with the usual keepalives.
SELECT set_config('lock_timeout', %(lock_timeout)s, true),
       set_config('statement_timeout', %(statement_timeout)s, true),
       set_config('idle_in_transaction_session_timeout', %(statement_timeout)s, true),
       CASE WHEN current_setting('server_version_num')::int >= 170000
            THEN set_config('transaction_timeout', %(transaction_timeout)s, true) END,
       set_config('synchronous_commit', %(synchronous_commit)s, true),
       set_config('plan_cache_mode', 'force_generic_plan', true),
       set_config('jit', 'off', true),
       set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true),
       set_config('search_path', 'pg_catalog', true)
