-- Retires destinations by name, and keeps who did it: no new jobs are routed to them; those they have stay, and are
-- listed.
--
-- locks   the rows, and before them registry_lock.sql.
-- index   destination_pkey.
WITH retired AS (
    UPDATE outbox.destination
       SET retired_at = now(), generation = %(generation)s
     WHERE name = ANY (%(names)s) AND retired_at IS NULL
    RETURNING name
),
kept AS (
    INSERT INTO outbox.operation (actor, verb, destination, detail)
    SELECT %(actor)s::text, 'retire', r.name, jsonb_build_object('generation', %(generation)s::bigint)
      FROM retired r
)
SELECT r.name FROM retired r
