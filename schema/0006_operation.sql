-- What operators did: which verb, to which job or destination, who and why.
--
-- why:          a job that was discarded must name the person who did it
-- locks:        none that anybody can wait for: everything here is new
-- old replicas: may run
-- transaction:  one

CREATE TABLE outbox.operation (
    id          bigint      GENERATED ALWAYS AS IDENTITY,
    at          timestamptz NOT NULL DEFAULT now(),
    actor       text        NOT NULL,
    verb        text        NOT NULL,
    job_id      bigint,
    destination text,
    detail      jsonb       NOT NULL DEFAULT '{}',
    CONSTRAINT operation_pkey PRIMARY KEY (id),
    CONSTRAINT operation_names_an_actor CHECK (actor <> '')
);

-- Read by `relay job show` and `relay operations`: what was done to this job, or to this destination and its jobs.
CREATE INDEX operation_job ON outbox.operation (job_id, id) WHERE job_id IS NOT NULL;
CREATE INDEX operation_destination ON outbox.operation (destination, id);

GRANT SELECT, INSERT ON outbox.operation TO outbox_relay;
GRANT SELECT ON outbox.operation TO outbox_reader;

COMMENT ON TABLE outbox.operation IS 'One row for each thing that a person did to a job or a destination, or a replica that paused one; nothing deletes them.';
