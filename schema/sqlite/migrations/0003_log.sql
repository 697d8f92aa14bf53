-- The outbox read as a log. Each message waits in outbox_log_pending until a sequencer gives it a position, as on databases
-- where transactions commit out of order. A message for the log alone has no state, so no claim takes it.
CREATE TABLE IF NOT EXISTS "main"."outbox_log_pending" (
    seq        INTEGER NOT NULL PRIMARY KEY,
    message_id TEXT    NOT NULL,
    topic      TEXT    NOT NULL
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS "main"."outbox_log_pending_message" ON "outbox_log_pending" (message_id);

CREATE TABLE IF NOT EXISTS "main"."outbox_log" (
    position   INTEGER NOT NULL PRIMARY KEY,
    topic      TEXT    NOT NULL,
    message_id TEXT    NOT NULL,
    logged_at  INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS "main"."outbox_log_topic" ON "outbox_log" (topic, position);
CREATE INDEX IF NOT EXISTS "main"."outbox_log_message" ON "outbox_log" (message_id);

-- The last position given.
CREATE TABLE IF NOT EXISTS "main"."outbox_log_counter" (
    id       INTEGER NOT NULL PRIMARY KEY,
    position INTEGER NOT NULL
) WITHOUT ROWID;

-- How far each consumer group has read in each topic, and who reads for it. attempts have been spent on the message at
-- tried. version and shape are the reader's, so that a newer one can take over. interrupted says that a reader
-- never gave its lease back, and none has moved the group on since: a message may have killed it.
CREATE TABLE IF NOT EXISTS "main"."outbox_log_group" (
    group_name   TEXT    NOT NULL,
    topic        TEXT    NOT NULL,
    position     INTEGER NOT NULL DEFAULT 0,
    owner_token  TEXT    NULL,
    locked_until INTEGER NULL,
    tried        INTEGER NOT NULL DEFAULT 0,
    attempts     INTEGER NOT NULL DEFAULT 0,
    version      INTEGER NOT NULL DEFAULT 0,
    shape        INTEGER NOT NULL DEFAULT 0,
    interrupted  INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (group_name, topic)
) WITHOUT ROWID;

-- Messages that a group gave up and passed. A message stays in the log while its row is here; requeued marks those to
-- deliver to the group again.
CREATE TABLE IF NOT EXISTS "main"."outbox_log_dead" (
    group_name TEXT    NOT NULL,
    topic      TEXT    NOT NULL,
    position   INTEGER NOT NULL,
    message_id TEXT    NOT NULL,
    attempts   INTEGER NOT NULL,
    reason     TEXT    NULL,
    failed_at  INTEGER NOT NULL,
    requeued   INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (group_name, position, topic)
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS "main"."outbox_log_dead_position" ON "outbox_log_dead" (position);
CREATE INDEX IF NOT EXISTS "main"."outbox_log_dead_requeued" ON "outbox_log_dead" (group_name, topic, position) WHERE requeued;

-- If the counter was lost, it continues after the last known position.
INSERT INTO "main"."outbox_log_counter" (id, position)
SELECT 1, max((SELECT coalesce(max(l.position), 0) FROM "main"."outbox_log" AS l),
              (SELECT coalesce(max(g.position), 0) FROM "main"."outbox_log_group" AS g))
WHERE true
ON CONFLICT (id) DO NOTHING;

-- The ids of messages that must be kept after they have ended. The joins replace this view with one that adds theirs, and
-- this file does not overwrite it.
CREATE VIEW IF NOT EXISTS "main"."outbox_kept" AS
SELECT l.message_id FROM "outbox_log" AS l
UNION ALL
SELECT p.message_id FROM "outbox_log_pending" AS p;
