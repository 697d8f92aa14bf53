-- The inbox: one row for each message that a handler has received. The queue is the table of the outbox, and queue_id is the
-- message there that the handler works on, or NULL if the message was handled as it was received. seen counts how often the
-- message arrived, beginning with 1. processed_at is set together with the handler's effects.
CREATE TABLE IF NOT EXISTS "main"."outbox_entry" (
    seq           INTEGER PRIMARY KEY AUTOINCREMENT,
    source        TEXT    NOT NULL,
    message_id    TEXT    NOT NULL,
    handler       TEXT    NOT NULL,
    content_hash  BLOB    NOT NULL,
    first_seen_at INTEGER NOT NULL,
    last_seen_at  INTEGER NOT NULL,
    seen          INTEGER NOT NULL DEFAULT 1,
    queue_id      TEXT    NULL,
    processed_at  INTEGER NULL,
    result        BLOB    NULL
);

CREATE UNIQUE INDEX IF NOT EXISTS "main"."outbox_entry_key" ON "outbox_entry" (handler, source, message_id);

-- Entries by age, for purging.
CREATE INDEX IF NOT EXISTS "main"."outbox_entry_last_seen" ON "outbox_entry" (last_seen_at);

-- The entries with their states, for people (outbox_entry_get reads them by key): the state of the message in the queue, or
-- done if there is none.
CREATE VIEW IF NOT EXISTS "main"."outbox_entry_view" AS
SELECT e.seq, e.source, e.message_id, e.handler, e.content_hash, e.first_seen_at, e.last_seen_at, e.seen, e.queue_id, e.processed_at,
       coalesce(s.status, 2) AS status,
       CASE coalesce(s.status, 2) WHEN 0 THEN 'ready' WHEN 1 THEN 'in progress' WHEN 2 THEN 'done' WHEN 3 THEN 'failed' END AS state,
       coalesce(s.retry_count, 0) AS attempts,
       (SELECT a.error FROM "outbox_attempt" AS a WHERE a.seq = o.seq AND a.error IS NOT NULL ORDER BY a.attempt_id DESC LIMIT 1) AS last_error,
       e.result, CAST(e.result AS TEXT) AS result_text,
       datetime(e.first_seen_at / 1000.0, 'unixepoch', 'subsec') AS first_seen,
       datetime(e.last_seen_at / 1000.0, 'unixepoch', 'subsec') AS last_seen,
       datetime(e.processed_at / 1000.0, 'unixepoch', 'subsec') AS processed
FROM "outbox_entry" AS e
LEFT JOIN "outbox" AS o INDEXED BY "outbox_message_id" ON o.message_id = e.queue_id
LEFT JOIN "outbox_state" AS s ON s.seq = o.seq;

-- Deleting an entry deletes its message.
CREATE TRIGGER IF NOT EXISTS "main"."outbox_entry_gone" AFTER DELETE ON "outbox_entry" WHEN OLD.queue_id IS NOT NULL
BEGIN
    DELETE FROM "outbox"
    WHERE message_id = OLD.queue_id AND coalesce((SELECT s.status FROM "outbox_state" AS s WHERE s.seq = "outbox".seq), 2) IN (2, 3);
END;
