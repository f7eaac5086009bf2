-- Ends a transaction whose client has fallen silent, and lets go of its rows: from PostgreSQL 17 on.
--
-- Between two messages of a pipeline no other limit counts, neither statement_timeout nor
-- idle_in_transaction_session_timeout; the rows would stay locked until the server notices that the client is gone,
-- two hours with the usual keepalives.
SELECT set_config('transaction_timeout', %(transaction_timeout)s, true)
