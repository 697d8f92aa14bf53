-- The outbox: what a message says lies apart from how it stands. Times are integer milliseconds since 1970, UTC.
--
-- Contents: publishers write them once; purging deletes them when nothing needs them. seq names the message in all
-- tables here and is never used again; message_id names it outside. topic_key is the first eight bytes of the SHA-256 of the
-- topic: of fixed width where states and indexes have it, and the same on every database.
-- What may be long comes last, so that the rest is read without it.
CREATE TABLE IF NOT EXISTS "main"."outbox" (
    seq            INTEGER PRIMARY KEY AUTOINCREMENT,
    message_id     TEXT    NOT NULL,
    uuid           TEXT    NOT NULL,
    topic          TEXT    NOT NULL,
    topic_key      INTEGER NOT NULL,
    correlation_id TEXT    NULL,
    stream_key     TEXT    NULL,
    created_at     INTEGER NOT NULL,
    due_at         INTEGER NULL,
    headers        TEXT    NULL,
    payload        BLOB    NOT NULL,
    CONSTRAINT "outbox_content_times" CHECK (typeof(created_at) = 'integer' AND typeof(due_at) IN ('integer', 'null'))
);

-- By a name of its own, for statements to be held to it.
CREATE UNIQUE INDEX IF NOT EXISTS "main"."outbox_message_id" ON "outbox" (message_id);

-- States: settling rewrites some eighty bytes, whatever the message says. size is that of payload and headers in bytes.
-- next_attempt_at is the one eligibility column: the due time of a new message, the backoff of one that failed.
-- "outbox_times" keeps out what is no integer, which no client can read: one such row would stop every claim.
-- status: 0 ready, 1 in progress (leased), 2 done, 3 failed. flags: 1 joins depend on the message, 2 the log does.
-- A message that is only in the log has no state. DeleteOnAck deletes the state with the acknowledgement.
CREATE TABLE IF NOT EXISTS "main"."outbox_state" (
    seq             INTEGER PRIMARY KEY,
    topic_key       INTEGER NOT NULL,
    next_attempt_at INTEGER NOT NULL,
    processed_at    INTEGER NULL,
    owner_token     TEXT    NULL,
    size            INTEGER NOT NULL DEFAULT 0,
    retry_count     INTEGER NOT NULL DEFAULT 0,
    worker_id       INTEGER NULL,
    status          INTEGER NOT NULL DEFAULT 0,
    flags           INTEGER NOT NULL DEFAULT 0,
    CONSTRAINT "outbox_held" CHECK ((status = 1) = (owner_token IS NOT NULL)),
    CONSTRAINT "outbox_times" CHECK (typeof(next_attempt_at) = 'integer' AND typeof(processed_at) IN ('integer', 'null'))
);

-- A claim is a range seek here: only ready rows are in it, in the order in which they are taken.
CREATE INDEX IF NOT EXISTS "main"."outbox_ready" ON "outbox_state" (topic_key, next_attempt_at, seq) WHERE status = 0;

-- Dead letters by age.
CREATE INDEX IF NOT EXISTS "main"."outbox_dead" ON "outbox_state" (processed_at, seq) WHERE status = 3;

-- What is done, for purging. A range of the key itself would do, but no statement can be held to that: where statistics say that
-- there is almost nothing, the whole table is read.
CREATE INDEX IF NOT EXISTS "main"."outbox_done" ON "outbox_state" (seq) WHERE status = 2;

-- Contents whose states were deleted when they were acknowledged, for purging. To put one in here deletes its state: by the key,
-- which a DELETE of many is not held to.
CREATE TABLE IF NOT EXISTS "main"."outbox_acked" (
    seq INTEGER NOT NULL PRIMARY KEY
) WITHOUT ROWID;

CREATE TRIGGER IF NOT EXISTS "main"."outbox_ack" AFTER INSERT ON "outbox_acked"
BEGIN
    DELETE FROM "outbox_state" WHERE seq = NEW.seq;
END;

-- One lease a claim: renewing it writes one row, however many messages it holds, and a held message is in no index.
-- seqs is what was claimed, a JSON array, for whoever gives it back when the lease has expired; that lease is marked by
-- locked_until 0 until the end of the transaction.
CREATE TABLE IF NOT EXISTS "main"."outbox_lease" (
    owner_token  TEXT    NOT NULL PRIMARY KEY,
    worker_id    INTEGER NOT NULL,
    locked_until INTEGER NOT NULL,
    seqs         TEXT    NOT NULL,
    CONSTRAINT "outbox_lease_times" CHECK (typeof(locked_until) = 'integer')
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS "main"."outbox_leased" ON "outbox_lease" (locked_until);

-- What the attempts that did not succeed said. outcome: 1 retried, 2 released with a reason, 3 failed, 4 the lease expired.
-- attempt_id counts for each message.
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

-- Who works, by a small number. There is one writer at a time, and so one row a name.
CREATE TABLE IF NOT EXISTS "main"."outbox_worker" (
    worker_id  INTEGER PRIMARY KEY,
    name       TEXT    NOT NULL,
    started_at INTEGER NOT NULL
);

CREATE UNIQUE INDEX IF NOT EXISTS "main"."outbox_worker_name" ON "outbox_worker" (name);

-- Messages for the queue are inserted here, so that contents and state are one statement: publishing one message needs no
-- more than that.
CREATE VIEW IF NOT EXISTS "main"."outbox_queued" AS
SELECT o.message_id, o.uuid, o.topic, o.topic_key, o.payload, o.headers, o.correlation_id, o.stream_key, o.created_at, o.due_at
FROM "outbox_state" AS s CROSS JOIN "outbox" AS o ON o.seq = s.seq;

CREATE TRIGGER IF NOT EXISTS "main"."outbox_queue" INSTEAD OF INSERT ON "outbox_queued"
BEGIN
    INSERT INTO "outbox" (message_id, uuid, topic, topic_key, payload, headers, correlation_id, stream_key, created_at, due_at)
    VALUES (NEW.message_id, NEW.uuid, NEW.topic, NEW.topic_key, NEW.payload, NEW.headers, NEW.correlation_id, NEW.stream_key,
            NEW.created_at, NEW.due_at);
    INSERT INTO "outbox_state" (seq, topic_key, next_attempt_at, size)
    VALUES (last_insert_rowid(), NEW.topic_key, max(coalesce(NEW.due_at, 0), NEW.created_at),
            length(NEW.payload) + coalesce(octet_length(NEW.headers), 0));
END;

-- What a message leaves behind when its contents are deleted.
CREATE TRIGGER IF NOT EXISTS "main"."outbox_gone" AFTER DELETE ON "outbox"
BEGIN
    DELETE FROM "outbox_state" WHERE seq = OLD.seq;
    DELETE FROM "outbox_acked" WHERE seq = OLD.seq;
    DELETE FROM "outbox_attempt" WHERE seq = OLD.seq;
END;
