-- What failed attempts looked like.
--
-- why:          "why is it not delivered?" is answered from here
-- locks:        none that anybody can wait for: everything here is new
-- old replicas: may run
-- transaction:  one

CREATE TABLE outbox.attempt (
    job_id      bigint           NOT NULL,
    claim       integer          NOT NULL,
    attempt     integer          NOT NULL,
    failed_at   timestamptz      NOT NULL DEFAULT now(),
    replica     text             NOT NULL,
    error_class text             NOT NULL,
    detail      text             NOT NULL,
    status      integer,
    duration_s  double precision NOT NULL,
    response    bytea            NOT NULL DEFAULT '',
    -- No foreign key: a lock on the job's row for each failure is what the hot table can do without.
    CONSTRAINT attempt_pkey PRIMARY KEY (job_id, claim),
    CONSTRAINT attempt_response_is_at_most_4_kib CHECK (octet_length(response) <= 4096)
);

-- Read by retention.
CREATE INDEX attempt_failed_at ON outbox.attempt (failed_at);

COMMENT ON TABLE outbox.attempt IS 'One row for each failed attempt, until its age deletes it.';
