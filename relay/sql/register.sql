-- Registers destinations as configuration has them, and brings retired ones of that name back.
--
-- locks   the rows, and before them registry_lock.sql.
-- index   destination_pkey.
-- order   by name, as given.
INSERT INTO outbox.destination AS d (name, topics, on_dead, generation)
SELECT r.name, ARRAY(SELECT jsonb_array_elements_text(r.topics)), r.on_dead, %(generation)s
  FROM unnest(%(names)s::text[], %(topics)s::jsonb[], %(on_dead)s::text[]) AS r (name, topics, on_dead)
    ON CONFLICT (name) DO UPDATE
       SET topics = excluded.topics,
           on_dead = excluded.on_dead,
           generation = excluded.generation,
           registered_at = now(),
           retired_at = NULL
     WHERE (d.topics, d.on_dead, d.generation, d.retired_at)
           IS DISTINCT FROM (excluded.topics, excluded.on_dead, excluded.generation, NULL::timestamptz)
RETURNING name
