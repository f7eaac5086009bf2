-- Resumes a paused destination, and keeps who did it; says whether it was paused.
--
-- locks   the destination's row.
-- index   destination_pkey.
WITH resumed AS (
    UPDATE outbox.destination
       SET paused_at = NULL, paused_why = NULL
     WHERE name = %(name)s AND paused_at IS NOT NULL
    RETURNING name
),
kept AS (
    INSERT INTO outbox.operation (actor, verb, destination)
    SELECT %(actor)s::text, 'resume', r.name FROM resumed r
)
SELECT r.name FROM resumed r
