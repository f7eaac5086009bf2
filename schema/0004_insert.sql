-- What happens inside the producer's INSERT: three triggers, each entered only by rows that need it.
--
-- why:          plain SQL is the whole client library
-- locks:        SHARE ROW EXCLUSIVE on outbox.job for CREATE TRIGGER; the table is new
-- old replicas: may run
-- transaction:  one

-- ORMs write NULL where they mean the default, a due time in the past means now, and a transaction can say once for
-- all of its jobs which trace it belongs to: SET LOCAL outbox.traceparent, and outbox.tracestate.
CREATE FUNCTION outbox.normalise() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    NEW.priority := coalesce(NEW.priority, 1);
    NEW.idempotency_key := coalesce(NEW.idempotency_key, gen_random_uuid()::text);
    IF NEW.run_at > NEW.created_at THEN
        NEW.scheduled_at := NEW.run_at;
    ELSE
        NEW.run_at := NEW.created_at;
    END IF;
    IF NEW.traceparent IS NULL THEN
        -- A setting that was local to an earlier transaction is empty in this one, not unknown.
        NEW.traceparent := nullif(current_setting('outbox.traceparent', true), '');
        IF NEW.traceparent IS NOT NULL THEN
            NEW.tracestate := nullif(current_setting('outbox.tracestate', true), '');
        END IF;
    END IF;
    RETURN NEW;
END
$$;

-- Who gets a job of this topic, by name. In plpgsql, which keeps the plan for the session.
CREATE FUNCTION outbox.subscribers(topic text) RETURNS text[]
    LANGUAGE plpgsql
    STABLE
    SET search_path = pg_catalog, pg_temp
    -- Somebody's ALTER TABLE of the registry does not hold up business: then the job waits as unrouted.
    SET lock_timeout = '250ms'
AS $$
BEGIN
    RETURN ARRAY(
        SELECT d.name
          FROM outbox.destination d
         WHERE d.retired_at IS NULL
           AND d.topics && (ARRAY['*', subscribers.topic]
               || ARRAY(SELECT left(subscribers.topic, dot) || '*'
                          FROM generate_series(1, least(length(subscribers.topic), 255)) AS dot
                         WHERE substr(subscribers.topic, dot, 1) = '.'))
         ORDER BY d.name);
END
$$;

-- Fan-out: the row becomes the first subscriber's job, so that RETURNING answers; the others get copies.
-- Runs as its owner, since a producer may neither read the registry nor write a status.
CREATE FUNCTION outbox.route() RETURNS trigger
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    subscribers text[];
BEGIN
    -- Only the look-up is guarded. A handler round the INSERT as well would burn a transaction id a row.
    BEGIN
        subscribers := outbox.subscribers(NEW.topic);
    EXCEPTION WHEN OTHERS THEN
        RAISE WARNING 'outbox: routing of topic "%" failed, the job waits as unrouted: %', NEW.topic, SQLERRM;
        subscribers := '{}';
    END;

    IF cardinality(subscribers) = 0 THEN
        NEW.status := 'unrouted';
        RETURN NEW;
    END IF;

    NEW.destination := subscribers[1];
    IF cardinality(subscribers) > 1 THEN
        INSERT INTO outbox.job (destination, topic, entity_key, idempotency_key, run_at, scheduled_at, priority,
                                max_attempts, content_type, traceparent, tracestate, headers, payload, body)
        SELECT s.name, NEW.topic, NEW.entity_key, NEW.idempotency_key, NEW.run_at, NEW.scheduled_at, NEW.priority,
               NEW.max_attempts, NEW.content_type, NEW.traceparent, NEW.tracestate, NEW.headers, NEW.payload, NEW.body
          FROM unnest(subscribers[2:]) AS s (name);
    END IF;
    RETURN NEW;
END
$$;

-- Wakes the relays. A hint: a lost one costs a poll.
CREATE FUNCTION outbox.wake() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM pg_notify('outbox', NEW.destination);
    RETURN NEW;
END
$$;

REVOKE EXECUTE ON FUNCTION outbox.normalise(), outbox.subscribers(text), outbox.route(), outbox.wake() FROM PUBLIC;

COMMENT ON FUNCTION outbox.subscribers IS 'The registered destinations that subscribe to a topic.';

-- 1 while a replica is idle and wants to be woken, else 0. A NOTIFY takes a lock that serialises every commit
-- of the database, so none is sent while the relays look at the table anyway. A sequence, because its value
-- is read and written outside of transactions: always current, and no row to fight over.
CREATE SEQUENCE outbox.idle MINVALUE 0 MAXVALUE 1 START 0 CACHE 1;

-- Read in a trigger's WHEN with the producer's own rights, whoever that is. The value is no secret.
GRANT SELECT ON SEQUENCE outbox.idle TO PUBLIC;

-- Triggers fire in the order of their names: normalise, route, wake.
CREATE TRIGGER job_normalise BEFORE INSERT ON outbox.job
    FOR EACH ROW
    WHEN (NEW.run_at IS DISTINCT FROM NEW.created_at OR NEW.priority IS NULL OR NEW.idempotency_key IS NULL
          OR (NEW.traceparent IS NULL AND current_setting('outbox.traceparent', true) <> ''))
    EXECUTE FUNCTION outbox.normalise();

CREATE TRIGGER job_route BEFORE INSERT ON outbox.job
    FOR EACH ROW
    WHEN (NEW.destination IS NULL)
    EXECUTE FUNCTION outbox.route();

CREATE TRIGGER job_wake BEFORE INSERT ON outbox.job
    FOR EACH ROW
    WHEN (NEW.destination IS NOT NULL AND NEW.run_at <= NEW.created_at
          AND pg_sequence_last_value('outbox.idle'::regclass) = 1)
    EXECUTE FUNCTION outbox.wake();
