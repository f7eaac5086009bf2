-- The webhooks that configuration registered, for the routing trigger and for operators. No secrets, no URLs.
--
-- why:          fan-out happens in the producer's transaction, so the database must know who subscribes
-- locks:        none that anybody can wait for: everything here is new
-- old replicas: may run
-- transaction:  one

CREATE TABLE outbox.destination (
    name          text        NOT NULL,
    topics        text[]      NOT NULL DEFAULT '{}',
    on_dead       text        NOT NULL DEFAULT 'block',
    generation    bigint      NOT NULL DEFAULT 0,
    registered_at timestamptz NOT NULL DEFAULT now(),
    retired_at    timestamptz,
    paused_at     timestamptz,
    paused_why    text,
    CONSTRAINT destination_pkey PRIMARY KEY (name),
    CONSTRAINT destination_name_is_lower_case CHECK (name ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
    CONSTRAINT destination_on_dead_is_block_or_skip CHECK (on_dead IN ('block', 'skip')),
    CONSTRAINT destination_paused_says_why CHECK ((paused_at IS NULL) = (paused_why IS NULL))
);

-- Read by the routing trigger: who subscribes to one of these patterns.
CREATE INDEX destination_topics ON outbox.destination USING gin (topics) WITH (fastupdate = off);

COMMENT ON TABLE outbox.destination IS 'Written by `relay sync`, and by pause and resume; nobody else.';
