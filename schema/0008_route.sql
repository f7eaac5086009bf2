-- Jobs that nobody subscribed to can be sent on later.
--
-- why:          `relay route` looks up subscribers as the routing trigger does
-- locks:        none that anybody can wait for: the function is new
-- old replicas: may run
-- transaction:  one

GRANT EXECUTE ON FUNCTION outbox.subscribers TO outbox_relay;

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
