-- The jobs, and the rows that cannot exist.
--
-- why:          one row is one job for one destination; its id is its place in its entity's order
-- locks:        none that anybody can wait for: everything here is new
-- old replicas: may run
-- transaction:  one

CREATE TABLE outbox.job (
    id              bigint      GENERATED ALWAYS AS IDENTITY (CACHE 1),

    -- What the relay changes stands together and before what never changes: an UPDATE that stays on its
    -- page then logs only these bytes, not the payload again.
    status          text        NOT NULL DEFAULT 'pending',
    holds_lane      boolean     NOT NULL DEFAULT true,
    redrive         boolean     NOT NULL DEFAULT false,
    attempts        integer     NOT NULL DEFAULT 0,
    claims          integer     NOT NULL DEFAULT 0,
    run_at          timestamptz NOT NULL DEFAULT now(),
    locked_until    timestamptz,
    finished_at     timestamptz,
    locked_by       text,

    priority        smallint    NOT NULL DEFAULT 1,
    max_attempts    integer,
    created_at      timestamptz NOT NULL DEFAULT now(),
    scheduled_at    timestamptz,
    destination     text,
    topic           text        NOT NULL,
    entity_key      text,
    idempotency_key text        NOT NULL DEFAULT gen_random_uuid()::text,
    content_type    text,
    traceparent     text,
    tracestate      text,
    headers         jsonb,
    payload         json,
    body            bytea,

    CONSTRAINT job_pkey PRIMARY KEY (id),

    -- States. These are checked on every write.
    CONSTRAINT job_status_is_known CHECK (
        status IN ('pending', 'running', 'blocked', 'done', 'dead', 'discarded', 'unrouted')),
    CONSTRAINT job_running_has_a_lease CHECK (
        (status = 'running') = (locked_by IS NOT NULL) AND (status = 'running') = (locked_until IS NOT NULL)),
    CONSTRAINT job_running_was_claimed CHECK (status <> 'running' OR claims > 0),
    CONSTRAINT job_finished_has_a_time CHECK (
        (status IN ('done', 'dead', 'discarded')) = (finished_at IS NOT NULL)),
    CONSTRAINT job_blocked_has_an_entity CHECK (status <> 'blocked' OR entity_key IS NOT NULL),
    CONSTRAINT job_without_destination_is_unrouted CHECK (
        CASE WHEN destination IS NULL THEN status IN ('unrouted', 'discarded') ELSE status <> 'unrouted' END),
    CONSTRAINT job_holds_lane_until_finished CHECK (
        CASE WHEN status IN ('done', 'discarded') THEN NOT holds_lane
             WHEN status = 'dead' THEN NOT holds_lane OR entity_key IS NOT NULL
             ELSE holds_lane END),
    CONSTRAINT job_attempts_within_claims CHECK (attempts >= 0 AND attempts <= claims),

    -- Input. An UPDATE checks every constraint of a table again, so these stand aside once the relay has
    -- claimed the row: nothing they look at changes, and some of them read the whole payload.
    CONSTRAINT job_payload_or_body_but_not_both CHECK (claims > 0 OR num_nonnulls(payload, body) = 1),
    CONSTRAINT job_body_needs_a_content_type CHECK (claims > 0 OR body IS NULL OR content_type IS NOT NULL),
    CONSTRAINT job_payload_is_at_most_1_mib CHECK (
        claims > 0 OR (coalesce(octet_length(payload::text), 0) <= 1048576
                       AND coalesce(octet_length(body), 0) <= 1048576)),
    CONSTRAINT job_topic_is_dotted_words CHECK (
        claims > 0 OR topic ~ '^[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,254}$'),
    CONSTRAINT job_destination_is_a_lower_case_name CHECK (
        claims > 0 OR destination ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
    CONSTRAINT job_entity_key_is_1_to_512_bytes CHECK (
        claims > 0 OR octet_length(entity_key) BETWEEN 1 AND 512),
    CONSTRAINT job_idempotency_key_is_visible_ascii_without_dot CHECK (
        claims > 0 OR (idempotency_key ~ '^[!-~]{1,255}$' AND idempotency_key !~ '[.,;"\\]')),
    CONSTRAINT job_priority_is_0_to_3 CHECK (priority BETWEEN 0 AND 3),
    CONSTRAINT job_max_attempts_is_1_to_1000 CHECK (max_attempts BETWEEN 1 AND 1000),
    CONSTRAINT job_run_at_is_finite CHECK (claims > 0 OR isfinite(run_at)),
    CONSTRAINT job_content_type_is_a_header_value CHECK (
        claims > 0 OR content_type ~ '^[!-~]([ -~]{0,253}[!-~])?$'),
    CONSTRAINT job_headers_are_an_object_of_strings CHECK (
        claims > 0 OR headers IS NULL
        OR (jsonb_typeof(headers) = 'object' AND NOT headers @? 'strict $.* ? (@.type() != "string")')),
    CONSTRAINT job_header_names_are_tokens CHECK (
        claims > 0
        OR NOT headers @? '$.keyvalue().key ? (!(@ like_regex "^[-!#$%&''*+.^_`|~0-9A-Za-z]{1,128}$"))'),
    CONSTRAINT job_header_values_are_visible_ascii CHECK (
        claims > 0 OR NOT headers @? '$.* ? (!(@ like_regex "^([!-~]([ -~\t]*[!-~])?)?$"))'),
    CONSTRAINT job_headers_are_at_most_8_kib CHECK (claims > 0 OR octet_length(headers::text) <= 8192),
    CONSTRAINT job_headers_leave_reserved_names_alone CHECK (
        claims > 0
        OR NOT headers @? '$.keyvalue().key ? (@ like_regex "^(host|content-length|content-type|user-agent|idempotency-key|webhook-.*|traceparent|tracestate|relay-.*|connection|keep-alive|proxy-.*|te|trailer|transfer-encoding|upgrade|expect)$" flag "i")')
) WITH (
    -- Room on each page for the two new versions that a job's life writes.
    fillfactor = 50,
    -- A queue is mostly dead rows; the defaults would wait for a fifth of the table.
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0
);

-- A stored payload is sent as it is; compressing it would cost a claim its decompression.
ALTER TABLE outbox.job ALTER COLUMN payload SET STORAGE EXTERNAL;
ALTER TABLE outbox.job ALTER COLUMN body SET STORAGE EXTERNAL;

-- Read by the claim: what is due, for each destination and priority one range of first attempts and one of retries,
-- so that however many retries are due, a new job is found without looking at them.
CREATE INDEX job_due ON outbox.job (destination, priority, (attempts > 0), run_at, id) WHERE status = 'pending';

-- The invariant: at most one running job for each destination and entity. Also walked for lapsed leases.
CREATE UNIQUE INDEX job_running ON outbox.job (destination, entity_key) WHERE status = 'running';

-- Read to find the holder of a lane: its lowest id.
CREATE INDEX job_lane ON outbox.job (destination, entity_key, id) WHERE holds_lane AND entity_key IS NOT NULL;

-- Read by retention.
CREATE INDEX job_finished ON outbox.job (finished_at) WHERE status IN ('done', 'discarded');

-- Read by the operator's lists.
CREATE INDEX job_dead ON outbox.job (destination, id) WHERE status = 'dead';
CREATE INDEX job_unrouted ON outbox.job (id) WHERE status = 'unrouted';

-- Read by retention, where dead letters have an age. Its condition keeps it out of every plan that does not ask for one.
CREATE INDEX job_died ON outbox.job (finished_at) WHERE status = 'dead' AND finished_at IS NOT NULL;

-- Read to let standing lanes go on when a policy changes to skip.
CREATE INDEX job_standing ON outbox.job (destination, id) WHERE status = 'dead' AND holds_lane;

COMMENT ON TABLE outbox.job IS 'One job for one destination. Producers insert; only the relay updates.';
COMMENT ON COLUMN outbox.job.id IS 'Order within (destination, entity_key).';
COMMENT ON COLUMN outbox.job.run_at IS 'When the job is due; the relay moves it on a retry.';
COMMENT ON COLUMN outbox.job.scheduled_at IS 'The run_at that the producer asked for, where it lay in the future.';
COMMENT ON COLUMN outbox.job.attempts IS 'Spent of the retry budget; counted when the job is claimed.';
COMMENT ON COLUMN outbox.job.claims IS 'How often the job was claimed; with locked_by it is the fencing token.';
COMMENT ON COLUMN outbox.job.holds_lane IS 'The job is, or stands behind, the holder of its lane; true for a dead job whose lane stands still.';
