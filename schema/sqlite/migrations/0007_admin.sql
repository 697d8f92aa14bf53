-- What operators do: topics that are paused, and a record of what was done. Claims look here, so the tables are always there.
--
-- Nothing of a paused topic is claimed. topic_key is that of the messages, so that a claim needs no text.
CREATE TABLE IF NOT EXISTS "main"."outbox_paused" (
    topic_key INTEGER PRIMARY KEY,
    topic     TEXT    NOT NULL,
    paused_at INTEGER NOT NULL,
    paused_by TEXT    NOT NULL,
    reason    TEXT    NOT NULL
);

-- One row an act of an operator; each of its batches adds to affected. selection says in words what it was done to.
CREATE TABLE IF NOT EXISTS "main"."outbox_audit" (
    audit_no    INTEGER PRIMARY KEY AUTOINCREMENT,
    happened_at INTEGER NOT NULL,
    actor       TEXT    NOT NULL,
    act         TEXT    NOT NULL,
    selection   TEXT    NOT NULL,
    affected    INTEGER NOT NULL
);

-- Messages that outbox_end ends, within a transaction. Deleting one here takes it out of the queue of its stream.
CREATE TABLE IF NOT EXISTS "main"."outbox_ended" (
    seq INTEGER PRIMARY KEY
);

CREATE TRIGGER IF NOT EXISTS "main"."outbox_ended_gone" AFTER DELETE ON "outbox_ended"
WHEN (SELECT s.stream_id FROM "outbox_state" AS s WHERE s.seq = OLD.seq) IS NOT NULL
BEGIN
    DELETE FROM "outbox_queue" WHERE stream_id = (SELECT s.stream_id FROM "outbox_state" AS s WHERE s.seq = OLD.seq) AND seq = OLD.seq;
    INSERT INTO "outbox_free" (stream_id) SELECT s.stream_id FROM "outbox_state" AS s WHERE s.seq = OLD.seq;
END;
