-- What was committed, in a table that retention does not touch: written by the inserting transaction, gone with it.
CREATE SCHEMA chaos;

CREATE TABLE chaos.entity (key text PRIMARY KEY);

CREATE TABLE chaos.ledger (job_id bigint PRIMARY KEY);

CREATE FUNCTION chaos.note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO chaos.ledger VALUES (NEW.id);
    RETURN NULL;
END
$$;

CREATE TRIGGER zz_note AFTER INSERT ON outbox.job
    FOR EACH ROW EXECUTE FUNCTION chaos.note();
