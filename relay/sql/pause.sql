-- Pauses a destination for every replica; claims read this table in their own statement. The backlog is kept.
--
-- locks   the destination's row.
-- index   destination_pkey.
INSERT INTO outbox.destination AS d (name, paused_at, paused_why)
VALUES (%(name)s, now(), %(why)s)
    ON CONFLICT (name) DO UPDATE SET paused_at = coalesce(d.paused_at, now()), paused_why = coalesce(d.paused_why, excluded.paused_why)
