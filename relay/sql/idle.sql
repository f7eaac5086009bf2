-- Raises (1) or lowers (0) the flag that the producers' trigger reads: does an idle replica want to be woken?
--
-- locks   none that lasts; a sequence is written outside of the transaction and seen at once by everybody.
-- index   none.
SELECT setval('outbox.idle', %(idle)s::integer)
 WHERE pg_sequence_last_value('outbox.idle') IS DISTINCT FROM %(idle)s::integer
