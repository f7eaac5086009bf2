-- Keeps what an operator did, in the transaction that does it.
--
-- locks   none that anybody can wait for.
-- index   none read.
INSERT INTO outbox.operation (actor, verb, job_id, destination, detail)
VALUES (%(actor)s, %(verb)s, %(job_id)s, %(destination)s, %(detail)s)
