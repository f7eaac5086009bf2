-- The oracle's own record inside the database: every change of a job's status, with the snapshot of the statement
-- that made it and the transaction it belongs to. So it can be asked exactly what that statement could see.
CREATE SCHEMA chaos;

CREATE TABLE chaos.entity (key text PRIMARY KEY);

CREATE TABLE chaos.history (
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    xid         xid8        NOT NULL DEFAULT pg_current_xact_id(),
    job_id      bigint      NOT NULL,
    destination text,
    entity_key  text,
    was         text,
    status      text        NOT NULL,
    holds_lane  boolean     NOT NULL,
    redrive     boolean     NOT NULL,
    claims      integer     NOT NULL,
    locked_by   text,
    seen        pg_snapshot
);
CREATE INDEX ON chaos.history (destination, entity_key, job_id);

ALTER TABLE outbox.job ADD COLUMN seen pg_snapshot;

-- STABLE, so that it runs with the snapshot of the statement that fired it, not with one of its own.
CREATE FUNCTION chaos.see() RETURNS trigger LANGUAGE plpgsql STABLE AS $$
BEGIN
    NEW.seen := pg_current_snapshot();
    RETURN NEW;
END
$$;

CREATE FUNCTION chaos.record() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO chaos.history (job_id, destination, entity_key, was, status, holds_lane, redrive, claims, locked_by, seen)
    VALUES (NEW.id, NEW.destination, NEW.entity_key, CASE TG_OP WHEN 'UPDATE' THEN OLD.status END, NEW.status,
            NEW.holds_lane, NEW.redrive, NEW.claims, NEW.locked_by, NEW.seen);
    RETURN NULL;
END
$$;

CREATE TRIGGER zz_see BEFORE UPDATE ON outbox.job
    FOR EACH ROW WHEN (OLD.status <> NEW.status) EXECUTE FUNCTION chaos.see();
CREATE TRIGGER zz_record_insert AFTER INSERT ON outbox.job
    FOR EACH ROW EXECUTE FUNCTION chaos.record();
CREATE TRIGGER zz_record_update AFTER UPDATE ON outbox.job
    FOR EACH ROW WHEN (OLD.status <> NEW.status) EXECUTE FUNCTION chaos.record();
