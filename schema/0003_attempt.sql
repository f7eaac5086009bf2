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
    trace_id    text,
    -- No foreign key: a lock on the job's row for each failure is what the hot table can do without.
    CONSTRAINT attempt_pkey PRIMARY KEY (job_id, claim),
    CONSTRAINT attempt_response_is_at_most_4_kib CHECK (octet_length(response) <= 4096),
    CONSTRAINT attempt_trace_id_is_32_hex_digits CHECK (trace_id ~ '^[0-9a-f]{32}$')
);

-- Of each job the newest 50 are kept: a job may be redriven for ever, and each answer may be 4 KiB. Entered only by a
-- job that was claimed more often than that, whoever writes the row. It waits for nobody, as retention does not.
CREATE FUNCTION outbox.forget_attempts() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM outbox.attempt a
     USING (SELECT b.job_id, b.claim
              FROM outbox.attempt b
             WHERE b.job_id = NEW.job_id
               AND b.claim <= (SELECT k.claim
                                 FROM outbox.attempt k
                                WHERE k.job_id = NEW.job_id
                                ORDER BY k.claim DESC
                               OFFSET 50
                                LIMIT 1)
               FOR UPDATE SKIP LOCKED) surplus
     WHERE a.job_id = surplus.job_id AND a.claim = surplus.claim;
    RETURN NULL;
END
$$;

REVOKE EXECUTE ON FUNCTION outbox.forget_attempts() FROM PUBLIC;

CREATE TRIGGER attempt_forget AFTER INSERT ON outbox.attempt
    FOR EACH ROW
    WHEN (NEW.claim > 50)
    EXECUTE FUNCTION outbox.forget_attempts();

-- Read by retention.
CREATE INDEX attempt_failed_at ON outbox.attempt (failed_at);

COMMENT ON TABLE outbox.attempt IS 'One row for each failed attempt, the newest 50 of a job, until their age deletes them.';
