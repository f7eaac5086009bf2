-- What the connected role may not do and the relay must.
--
-- locks   none.
-- index   none.
SELECT needed.what
  FROM (VALUES ('SELECT, UPDATE and DELETE on outbox.job',
                has_table_privilege('outbox.job', 'SELECT') AND has_table_privilege('outbox.job', 'UPDATE')
                AND has_table_privilege('outbox.job', 'DELETE')),
               ('SELECT, INSERT and UPDATE on outbox.destination',
                has_table_privilege('outbox.destination', 'SELECT') AND has_table_privilege('outbox.destination', 'INSERT')
                AND has_table_privilege('outbox.destination', 'UPDATE')),
               ('SELECT, INSERT, UPDATE and DELETE on outbox.attempt',
                has_table_privilege('outbox.attempt', 'SELECT') AND has_table_privilege('outbox.attempt', 'INSERT')
                AND has_table_privilege('outbox.attempt', 'UPDATE')
                AND has_table_privilege('outbox.attempt', 'DELETE')),
               ('SELECT and INSERT on outbox.operation',
                has_table_privilege('outbox.operation', 'SELECT') AND has_table_privilege('outbox.operation', 'INSERT')),
               ('SELECT, INSERT and UPDATE on outbox.sample',
                has_table_privilege('outbox.sample', 'SELECT') AND has_table_privilege('outbox.sample', 'INSERT')
                AND has_table_privilege('outbox.sample', 'UPDATE')),
               ('SELECT and UPDATE on sequence outbox.idle',
                has_sequence_privilege('outbox.idle', 'SELECT') AND has_sequence_privilege('outbox.idle', 'UPDATE'))
       ) AS needed (what, granted)
 WHERE NOT needed.granted
