-- The event store: an event is a message of the log that also has a version in a stream. The rows are always there: purging
-- the log must know which of its messages stay.
--
-- version is that of the last event. Events up to hidden were deleted, those up to purged are gone; a stream whose events are
-- all hidden counts as none, and goes on from its version. An archived stream takes no more events.
CREATE TABLE IF NOT EXISTS "main"."outbox_event_stream" (
    stream_no INTEGER PRIMARY KEY AUTOINCREMENT,
    name      TEXT    NOT NULL,
    version   INTEGER NOT NULL,
    hidden    INTEGER NOT NULL DEFAULT 0,
    purged    INTEGER NOT NULL DEFAULT 0,
    archived  INTEGER NOT NULL DEFAULT 0
);

CREATE UNIQUE INDEX IF NOT EXISTS "main"."outbox_event_stream_name" ON "outbox_event_stream" (name);

-- size is that of payload and headers in bytes, so that a page can be cut without looking at them.
CREATE TABLE IF NOT EXISTS "main"."outbox_event" (
    stream_no INTEGER NOT NULL,
    version   INTEGER NOT NULL,
    seq       INTEGER NOT NULL,
    size      INTEGER NOT NULL,
    PRIMARY KEY (stream_no, version)
) WITHOUT ROWID;

CREATE UNIQUE INDEX IF NOT EXISTS "main"."outbox_event_seq" ON "outbox_event" (seq);

-- How far the log holds nothing but events: purging, which leaves them, begins after that.
CREATE TABLE IF NOT EXISTS "main"."outbox_event_swept" (
    id       INTEGER NOT NULL PRIMARY KEY,
    position INTEGER NOT NULL
) WITHOUT ROWID;

INSERT INTO "main"."outbox_event_swept" (id, position) VALUES (1, 0) ON CONFLICT (id) DO NOTHING;

-- Deleting an event deletes its position, and its contents unless it is in the queue, too, whose purging deletes them then.
CREATE TRIGGER IF NOT EXISTS "main"."outbox_event_gone" AFTER DELETE ON "outbox_event"
BEGIN
    DELETE FROM "outbox_log" WHERE position = (
        SELECT l.position FROM "outbox_log" AS l WHERE l.message_id = (SELECT o.message_id FROM "outbox" AS o WHERE o.seq = OLD.seq));
    DELETE FROM "outbox" WHERE seq = OLD.seq AND NOT EXISTS (SELECT 1 FROM "outbox_state" AS s WHERE s.seq = OLD.seq);
END;
