-- Retires destinations by name: no new jobs are routed to them; those they have stay, and are listed.
--
-- locks   the rows, and before them registry_lock.sql.
-- index   destination_pkey.
UPDATE outbox.destination
   SET retired_at = now(), generation = %(generation)s
 WHERE name = ANY (%(names)s) AND retired_at IS NULL
RETURNING name
