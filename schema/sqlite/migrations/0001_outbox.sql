-- The outbox: a message's contents and its state are separate tables. Times are integer milliseconds since 1970, UTC.
--
-- Contents: written once by publishers, and deleted by purging when nothing needs them. seq identifies the message in all
-- these tables and is never reused; message_id identifies it outside. topic_key is the first eight bytes of the SHA-256 of
-- the topic: fixed width for states and indexes, and the same on every database. stream_id is the same for topic and stream
-- key, or NULL without a key. Long columns come last, so that the rest can be read without them.
CREATE TABLE IF NOT EXISTS "main"."outbox" (
    seq            INTEGER PRIMARY KEY AUTOINCREMENT,
    message_id     TEXT    NOT NULL,
    uuid           TEXT    NOT NULL,
    topic          TEXT    NOT NULL,
    topic_key      INTEGER NOT NULL,
    stream_id      INTEGER NULL,
    correlation_id TEXT    NULL,
    stream_key     TEXT    NULL,
    created_at     INTEGER NOT NULL,
    due_at         INTEGER NULL,
    headers        TEXT    NULL,
    payload        BLOB    NOT NULL,
    CONSTRAINT "outbox_content_times" CHECK (typeof(created_at) = 'integer' AND typeof(due_at) IN ('integer', 'null'))
);

-- Named, so that statements can be held to it.
CREATE UNIQUE INDEX IF NOT EXISTS "main"."outbox_message_id" ON "outbox" (message_id);

-- States: settling rewrites about eighty bytes, whatever the size of the message. size is the size of payload and headers in
-- bytes. next_attempt_at alone decides when a message is eligible: the due time of a new one, the end of the backoff of one
-- that failed. "outbox_times" keeps out values that are no integers and that no client can read: one such row would stop
-- every claim. status: 0 ready, 1 in progress (leased), 2 done, 3 failed, 5 ready in its stream. flags: 1 joins depend on
-- the message, 2 the log depends on it, 4 it failed and does not block its stream. stages: bits for what has happened to the
-- message, see middleware.Stages; NULL without any. A message for the log alone has no state, and readers give it status 4.
-- DeleteOnAck deletes the state with the acknowledgement.
CREATE TABLE IF NOT EXISTS "main"."outbox_state" (
    seq             INTEGER PRIMARY KEY,
    topic_key       INTEGER NOT NULL,
    stream_id       INTEGER NULL,
    next_attempt_at INTEGER NOT NULL,
    processed_at    INTEGER NULL,
    owner_token     TEXT    NULL,
    size            INTEGER NOT NULL DEFAULT 0,
    retry_count     INTEGER NOT NULL DEFAULT 0,
    worker_id       INTEGER NULL,
    status          INTEGER NOT NULL DEFAULT 0,
    flags           INTEGER NOT NULL DEFAULT 0,
    stages          INTEGER NULL,
    CONSTRAINT "outbox_held" CHECK ((status = 1) = (owner_token IS NOT NULL)),
    CONSTRAINT "outbox_times" CHECK (typeof(next_attempt_at) = 'integer' AND typeof(processed_at) IN ('integer', 'null'))
);

-- For claims, which are range seeks: only ready rows, in the order in which they are taken.
CREATE INDEX IF NOT EXISTS "main"."outbox_ready" ON "outbox_state" (topic_key, next_attempt_at, seq) WHERE status = 0;

-- Dead letters by age.
CREATE INDEX IF NOT EXISTS "main"."outbox_dead" ON "outbox_state" (processed_at, seq) WHERE status = 3;

-- Done messages, for purging. A range of the primary key would do, but no statement can be held to it: if statistics say
-- that the table is almost empty, all of it is read.
CREATE INDEX IF NOT EXISTS "main"."outbox_done" ON "outbox_state" (seq) WHERE status = 2;

-- Contents whose states were deleted on acknowledgement, for purging. Inserting one here deletes its state by key, to which
-- a DELETE of many rows cannot be held.
CREATE TABLE IF NOT EXISTS "main"."outbox_acked" (
    seq INTEGER NOT NULL PRIMARY KEY
) WITHOUT ROWID;

CREATE TRIGGER IF NOT EXISTS "main"."outbox_ack" AFTER INSERT ON "outbox_acked"
BEGIN
    DELETE FROM "outbox_state" WHERE seq = NEW.seq;
END;

-- One lease per claim: renewing it writes one row, however many messages it holds, and a held message is in no index. seqs
-- is a JSON array of what was claimed, so that it can be given back when the lease expires; such a lease is marked by
-- locked_until 0 until the end of the transaction. streams is the same for ordered streams, or NULL. What was claimed before
-- under the same token, or of ordered streams by the same claim, is an array within each.
CREATE TABLE IF NOT EXISTS "main"."outbox_lease" (
    owner_token  TEXT    NOT NULL PRIMARY KEY,
    worker_id    INTEGER NOT NULL,
    locked_until INTEGER NOT NULL,
    seqs         TEXT    NOT NULL,
    streams      TEXT    NULL,
    CONSTRAINT "outbox_lease_times" CHECK (typeof(locked_until) = 'integer')
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS "main"."outbox_leased" ON "outbox_lease" (locked_until);

-- Attempts that did not succeed, with their errors. outcome: 1 retried, 2 released with a reason, 3 failed, 4 the lease
-- expired, 5 ended by an operator. attempt_id counts per message.
CREATE TABLE IF NOT EXISTS "main"."outbox_attempt" (
    seq         INTEGER NOT NULL,
    attempt_id  INTEGER NOT NULL,
    happened_at INTEGER NOT NULL,
    worker_id   INTEGER NOT NULL,
    attempt     INTEGER NOT NULL,
    outcome     INTEGER NOT NULL,
    error       TEXT    NULL,
    PRIMARY KEY (seq, attempt_id)
) WITHOUT ROWID;

-- Workers, by a small number. There is one writer at a time, and so one row per name. seen_at is the last heartbeat; a process
-- that only makes plain calls has none. lives_until: when another heartbeat must have come. stopped_at is set by a worker that has
-- ended.
CREATE TABLE IF NOT EXISTS "main"."outbox_worker" (
    worker_id   INTEGER PRIMARY KEY,
    name        TEXT    NOT NULL,
    started_at  INTEGER NOT NULL,
    seen_at     INTEGER NULL,
    lives_until INTEGER NOT NULL DEFAULT (CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)),
    stopped_at  INTEGER NULL
);

CREATE UNIQUE INDEX IF NOT EXISTS "main"."outbox_worker_name" ON "outbox_worker" (name);

-- To count those that live, and to purge the others.
CREATE INDEX IF NOT EXISTS "main"."outbox_worker_lives" ON "outbox_worker" (lives_until, worker_id);

-- Messages for the queue are inserted here, so that contents and state take one statement to publish.
CREATE VIEW IF NOT EXISTS "main"."outbox_queued" AS
SELECT o.message_id, o.uuid, o.topic, o.topic_key, o.payload, o.headers, o.correlation_id, o.stream_key, o.created_at, o.due_at
FROM "outbox_state" AS s CROSS JOIN "outbox" AS o ON o.seq = s.seq;

CREATE TRIGGER IF NOT EXISTS "main"."outbox_queued_insert" INSTEAD OF INSERT ON "outbox_queued"
BEGIN
    INSERT INTO "outbox" (message_id, uuid, topic, topic_key, payload, headers, correlation_id, stream_key, created_at, due_at)
    VALUES (NEW.message_id, NEW.uuid, NEW.topic, NEW.topic_key, NEW.payload, NEW.headers, NEW.correlation_id, NEW.stream_key,
            NEW.created_at, NEW.due_at);
    INSERT INTO "outbox_state" (seq, topic_key, next_attempt_at, size)
    VALUES (last_insert_rowid(), NEW.topic_key, max(coalesce(NEW.due_at, 0), NEW.created_at),
            length(NEW.payload) + coalesce(octet_length(NEW.headers), 0));
END;

-- Cleans up after the contents of a message are deleted.
CREATE TRIGGER IF NOT EXISTS "main"."outbox_gone" AFTER DELETE ON "outbox"
BEGIN
    DELETE FROM "outbox_state" WHERE seq = OLD.seq;
    DELETE FROM "outbox_acked" WHERE seq = OLD.seq;
    DELETE FROM "outbox_attempt" WHERE seq = OLD.seq;
END;

-- Streams: messages of one topic and stream key are delivered one after the other. There is one writer at a time, so the
-- order of seq is the order of commits, and publishers write to the queues themselves. A stream's row is its lease. A row
-- exists while a message waits or is being handled. status: 0 ready, 1 leased, 2 blocked by a message that has failed.
-- next_attempt_at: when its head is due, or since when it has been waiting to be served. run_last: no message that is being
-- handled or has ended is behind it, except for a head that was ended outside a run.
CREATE TABLE IF NOT EXISTS "main"."outbox_stream" (
    stream_id       INTEGER PRIMARY KEY,
    topic_key       INTEGER NOT NULL,
    next_attempt_at INTEGER NOT NULL,
    run_last        INTEGER NOT NULL DEFAULT 0,
    owner_token     TEXT    NULL,
    status          INTEGER NOT NULL DEFAULT 0,
    CONSTRAINT "outbox_stream_held" CHECK ((status = 1) = (owner_token IS NOT NULL))
);

-- Only streams that may be served, those that have waited longest first.
CREATE INDEX IF NOT EXISTS "main"."outbox_stream_ready" ON "outbox_stream" (topic_key, next_attempt_at, stream_id) WHERE status = 0;

CREATE INDEX IF NOT EXISTS "main"."outbox_stream_blocked" ON "outbox_stream" (topic_key, stream_id) WHERE status = 2;

CREATE TABLE IF NOT EXISTS "main"."outbox_queue" (
    stream_id INTEGER NOT NULL,
    seq       INTEGER NOT NULL,
    PRIMARY KEY (stream_id, seq)
) WITHOUT ROWID;

-- Inserting a stream here frees it if its run has ended. Messages that have ended leave the queue; the stream becomes ready, or
-- blocked if its head has failed, and one without messages is deleted. A stream that is ready or blocked already is checked the same
-- way.
CREATE VIEW IF NOT EXISTS "main"."outbox_free" AS SELECT t.stream_id FROM "outbox_stream" AS t;

CREATE TRIGGER IF NOT EXISTS "main"."outbox_free_insert" INSTEAD OF INSERT ON "outbox_free"
WHEN NEW.stream_id IS NOT NULL
 AND NOT EXISTS (SELECT 1 FROM "outbox_queue" AS q
                 WHERE q.stream_id = NEW.stream_id
                   AND q.seq <= (SELECT t.run_last FROM "outbox_stream" AS t WHERE t.stream_id = NEW.stream_id)
                   AND (SELECT s.status FROM "outbox_state" AS s WHERE s.seq = q.seq) = 1)
BEGIN
    DELETE FROM "outbox_queue"
    WHERE stream_id = NEW.stream_id
      AND seq <= max((SELECT t.run_last FROM "outbox_stream" AS t WHERE t.stream_id = NEW.stream_id),
                     (SELECT q.seq FROM "outbox_queue" AS q WHERE q.stream_id = NEW.stream_id ORDER BY q.seq LIMIT 1))
      AND coalesce((SELECT s.status = 2 OR s.status = 3 AND s.flags & 4 FROM "outbox_state" AS s WHERE s.seq = "outbox_queue".seq), 1);
    DELETE FROM "outbox_stream"
    WHERE stream_id = NEW.stream_id AND NOT EXISTS (SELECT 1 FROM "outbox_queue" AS q WHERE q.stream_id = NEW.stream_id);
    UPDATE "outbox_stream"
    SET owner_token = NULL,
        (status, next_attempt_at) = (
            SELECT CASE h.status WHEN 3 THEN 2 ELSE 0 END,
                   max(CASE "outbox_stream".status WHEN 0 THEN min("outbox_stream".next_attempt_at, h.moment) ELSE h.moment END, h.due)
            FROM (SELECT (SELECT s.status FROM "outbox_state" AS s WHERE s.seq = q.seq) AS status,
                         coalesce((SELECT s.next_attempt_at FROM "outbox_state" AS s WHERE s.seq = q.seq), 0) AS due,
                         CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) AS moment
                  FROM "outbox_queue" AS q WHERE q.stream_id = NEW.stream_id ORDER BY q.seq LIMIT 1) AS h)
    WHERE stream_id = NEW.stream_id;
END;

-- The end of a lease frees its streams that have no message in progress.
CREATE TRIGGER IF NOT EXISTS "main"."outbox_lease_gone" AFTER DELETE ON "outbox_lease" WHEN OLD.streams IS NOT NULL
BEGIN
    INSERT INTO "outbox_free" (stream_id) SELECT i.value FROM json_tree(OLD.streams) AS i WHERE i.type = 'integer';
END;

-- Failed messages that are being made ready again, within a transaction. Deleting one here puts a message of a stream back
-- into its queue.
CREATE TABLE IF NOT EXISTS "main"."outbox_requeued" (
    seq INTEGER PRIMARY KEY
);

CREATE TRIGGER IF NOT EXISTS "main"."outbox_requeued_gone" AFTER DELETE ON "outbox_requeued"
WHEN (SELECT s.stream_id FROM "outbox_state" AS s WHERE s.seq = OLD.seq) IS NOT NULL
BEGIN
    INSERT INTO "outbox_queue" (stream_id, seq)
    SELECT s.stream_id, s.seq FROM "outbox_state" AS s WHERE s.seq = OLD.seq
    ON CONFLICT (stream_id, seq) DO NOTHING;
    INSERT INTO "outbox_stream" (stream_id, topic_key, next_attempt_at)
    SELECT s.stream_id, s.topic_key, s.next_attempt_at FROM "outbox_state" AS s WHERE s.seq = OLD.seq
    ON CONFLICT (stream_id) DO NOTHING;
    INSERT INTO "outbox_free" (stream_id) SELECT s.stream_id FROM "outbox_state" AS s WHERE s.seq = OLD.seq;
END;
