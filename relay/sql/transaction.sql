-- The settings of one transaction, whatever the role's defaults are, in a form that a transaction pooler keeps.
--
-- JIT costs more than any statement here; search_path is not used, so it must not be trusted.
SELECT set_config('lock_timeout', %(lock_timeout)s, true),
       set_config('statement_timeout', %(statement_timeout)s, true),
       set_config('idle_in_transaction_session_timeout', %(statement_timeout)s, true),
       set_config('synchronous_commit', %(synchronous_commit)s, true),
       set_config('jit', 'off', true),
       set_config('search_path', 'pg_catalog', true)
