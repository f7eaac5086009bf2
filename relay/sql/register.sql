-- Registers destinations as configuration has them, and brings retired ones of that name back. Keeps who did it where
-- more than the generation is new.
--
-- locks   the rows, and before them registry_lock.sql: what was there before is what this snapshot has.
-- index   destination_pkey.
-- order   by name, as given.
WITH registered AS (
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
    RETURNING d.name, d.topics, d.on_dead, d.generation
),
kept AS (
    INSERT INTO outbox.operation (actor, verb, destination, detail)
    SELECT %(actor)s::text, 'register', r.name,
           jsonb_build_object('topics', r.topics, 'on_dead', r.on_dead, 'generation', r.generation)
      FROM registered r
     WHERE NOT EXISTS (SELECT
                         FROM outbox.destination b
                        WHERE b.name = r.name AND b.retired_at IS NULL
                          AND (b.topics, b.on_dead) = (r.topics, r.on_dead))
)
SELECT r.name FROM registered r
