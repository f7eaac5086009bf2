-- Strict order for producers that lock no business row of the entity.
--
-- why:          an id is drawn when the row is inserted, and two transactions may commit in the other order; this takes
--               a lock of the entity first and keeps it to the end of the transaction, so that the second one waits
-- locks:        none that anybody can wait for: the function is new
-- old replicas: may run
-- transaction:  one

-- Runs with the caller's rights: whoever may insert a job may call it.
CREATE FUNCTION outbox.enqueue_ordered(
    topic           text,
    entity_key      text,
    payload         json        DEFAULT NULL,
    destination     text        DEFAULT NULL,
    idempotency_key text        DEFAULT NULL,
    run_at          timestamptz DEFAULT NULL,
    priority        smallint    DEFAULT NULL,
    max_attempts    integer     DEFAULT NULL,
    headers         jsonb       DEFAULT NULL,
    body            bytea       DEFAULT NULL,
    content_type    text        DEFAULT NULL,
    traceparent     text        DEFAULT NULL,
    tracestate      text        DEFAULT NULL
) RETURNS bigint
    LANGUAGE sql
    VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT pg_advisory_xact_lock(hashtextextended(enqueue_ordered.entity_key, 7236828793));
    INSERT INTO outbox.job (topic, entity_key, payload, destination, idempotency_key, run_at, priority, max_attempts,
                            headers, body, content_type, traceparent, tracestate)
    VALUES (enqueue_ordered.topic, enqueue_ordered.entity_key, enqueue_ordered.payload, enqueue_ordered.destination,
            enqueue_ordered.idempotency_key, enqueue_ordered.run_at, enqueue_ordered.priority,
            enqueue_ordered.max_attempts, enqueue_ordered.headers, enqueue_ordered.body, enqueue_ordered.content_type,
            enqueue_ordered.traceparent, enqueue_ordered.tracestate)
    RETURNING id;
$$;

REVOKE EXECUTE ON FUNCTION outbox.enqueue_ordered FROM PUBLIC;
GRANT EXECUTE ON FUNCTION outbox.enqueue_ordered TO outbox_producer;

COMMENT ON FUNCTION outbox.enqueue_ordered IS
    'Inserts a job; ids of one entity are then in the order of commits. Returns the id.';
