-- Who may do what. Grant these roles to the login roles of applications, relays and viewers.
--
-- why:          a producer that can only insert cannot lose, reorder or forge anybody's delivery
-- locks:        none that anybody waits for; roles belong to the cluster, so another database may have them already
-- old replicas: may run
-- transaction:  one

DO $$
DECLARE
    role_name text;
BEGIN
    FOREACH role_name IN ARRAY ARRAY['outbox_producer', 'outbox_relay', 'outbox_reader'] LOOP
        IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = role_name) THEN
            BEGIN
                EXECUTE pg_catalog.format('CREATE ROLE %I NOLOGIN', role_name);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL; -- Another database of this cluster is being migrated at this moment.
            END;
        END IF;
    END LOOP;
END
$$;

GRANT USAGE ON SCHEMA outbox TO outbox_producer, outbox_relay, outbox_reader;

GRANT INSERT (topic, destination, entity_key, payload, body, content_type, headers, idempotency_key, run_at,
              priority, max_attempts, traceparent, tracestate),
      SELECT (id)
   ON outbox.job TO outbox_producer;

GRANT SELECT, UPDATE, DELETE ON outbox.job TO outbox_relay;
GRANT SELECT, INSERT, UPDATE ON outbox.destination TO outbox_relay;
GRANT SELECT, INSERT, UPDATE, DELETE ON outbox.attempt TO outbox_relay;
GRANT SELECT, UPDATE ON SEQUENCE outbox.idle TO outbox_relay;
GRANT SELECT ON outbox.migration TO outbox_relay;

GRANT SELECT ON outbox.job, outbox.destination, outbox.attempt, outbox.migration TO outbox_reader;
