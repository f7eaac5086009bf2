-- Pauses a destination for every replica, and keeps who did it; claims read this table in their own statement. The
-- backlog is kept.
--
-- Comes back with the name where it was not paused before. Else nothing changes: many jobs may be answered with 410 by
-- the same receiver, and the first reason is the one to read.
--
-- locks   the destination's row.
-- index   destination_pkey.
WITH paused AS (
    INSERT INTO outbox.destination AS d (name, paused_at, paused_why)
    VALUES (%(name)s, now(), %(why)s)
        ON CONFLICT (name) DO UPDATE SET paused_at = now(), paused_why = excluded.paused_why WHERE d.paused_at IS NULL
    RETURNING d.name, d.paused_why
),
kept AS (
    INSERT INTO outbox.operation (actor, verb, destination, detail)
    SELECT %(actor)s::text, 'pause', p.name, jsonb_build_object('why', p.paused_why)
      FROM paused p
)
SELECT p.name FROM paused p
