-- Resumes a paused destination; says whether it was paused.
--
-- locks   the destination's row.
-- index   destination_pkey.
UPDATE outbox.destination
   SET paused_at = NULL, paused_why = NULL
 WHERE name = %(name)s AND paused_at IS NOT NULL
RETURNING name
