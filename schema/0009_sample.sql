-- One sample of the backlog for all replicas.
--
-- why:          gauges that cost a query are taken once an interval by whichever replica is first, and read by all
-- locks:        none that anybody can wait for: everything here is new
-- old replicas: may run
-- transaction:  one

CREATE TABLE outbox.sample (
    latest   boolean     NOT NULL DEFAULT true,
    taken_at timestamptz NOT NULL DEFAULT now(),
    taken_by text        NOT NULL,
    gauges   jsonb       NOT NULL,
    CONSTRAINT sample_pkey PRIMARY KEY (latest),
    CONSTRAINT sample_is_one_row CHECK (latest)
);

GRANT SELECT, INSERT, UPDATE ON outbox.sample TO outbox_relay;
GRANT SELECT ON outbox.sample TO outbox_reader;

COMMENT ON TABLE outbox.sample IS 'The latest values of the gauges in docs/metrics.md that cost a query: [name, destination, reason, value].';
