-- Jobs that nobody subscribed to can be sent on later. The look-up of subscribers gets a name of its own.
--
-- why:          `relay route` and the trigger must never disagree about who gets a topic
-- locks:        none that anybody can wait for: functions are created and replaced
-- old replicas: may run
-- transaction:  one

-- Who gets a job of this topic, by name. In plpgsql, which keeps the plan for the session.
CREATE FUNCTION outbox.subscribers(topic text) RETURNS text[]
    LANGUAGE plpgsql
    STABLE
    SET search_path = pg_catalog, pg_temp
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

REVOKE EXECUTE ON FUNCTION outbox.subscribers FROM PUBLIC;
GRANT EXECUTE ON FUNCTION outbox.subscribers TO outbox_relay;

COMMENT ON FUNCTION outbox.subscribers IS 'The registered destinations that subscribe to a topic.';

CREATE OR REPLACE FUNCTION outbox.route() RETURNS trigger
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

-- Sends unrouted jobs on, in the order of their ids: the row becomes the first subscriber's job and keeps its id, the
-- others get copies, which draw theirs now. Jobs without a subscriber stay. Runs as its owner: a relay may send on what
-- a producer inserted, and not make up jobs of its own.
--
-- `run_at` stays: the job takes the place in the queue it would have had. Its place in its lane is found as that of a
-- producer's late commit is.
--
-- Rows that somebody holds are waited for. Two of these at once lock in the order of ids before they draw any, so that
-- the copies of a lane are in the order of its jobs, whoever makes them.
CREATE FUNCTION outbox.route_unrouted(ids bigint[]) RETURNS TABLE (id bigint, destinations text[])
    LANGUAGE sql
    VOLATILE
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
    WITH wanted AS MATERIALIZED (
        SELECT w.id, outbox.subscribers(w.topic) AS names
          FROM outbox.job w
         WHERE w.id = ANY (route_unrouted.ids) AND w.status = 'unrouted'
         ORDER BY w.id
    ),
    locked AS MATERIALIZED (
        SELECT w.names, j.*
          FROM wanted w
         CROSS JOIN LATERAL (
               SELECT k.* FROM outbox.job k WHERE k.id = w.id AND k.status = 'unrouted' FOR UPDATE
               ) j
         WHERE cardinality(w.names) > 0
    ),
    routed AS (
        UPDATE outbox.job j
           SET status = 'pending',
               destination = (SELECT l.names[1] FROM locked l WHERE l.id = j.id)
         WHERE j.id = ANY (ARRAY(SELECT l.id FROM locked l))
    ),
    copied AS (
        INSERT INTO outbox.job (destination, topic, entity_key, idempotency_key, created_at, run_at, scheduled_at,
                                priority, max_attempts, content_type, traceparent, tracestate, headers, payload, body)
        SELECT n.name, l.topic, l.entity_key, l.idempotency_key, l.created_at, l.run_at, l.scheduled_at,
               l.priority, l.max_attempts, l.content_type, l.traceparent, l.tracestate, l.headers, l.payload, l.body
          FROM locked l
         CROSS JOIN unnest(l.names[2:]) AS n (name)
         ORDER BY l.id, n.name
    )
    SELECT l.id, l.names FROM locked l
$$;

REVOKE EXECUTE ON FUNCTION outbox.route_unrouted FROM PUBLIC;
GRANT EXECUTE ON FUNCTION outbox.route_unrouted TO outbox_relay;

COMMENT ON FUNCTION outbox.route_unrouted IS 'Sends unrouted jobs on to those who subscribe by now.';
