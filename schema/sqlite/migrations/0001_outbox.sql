-- The outbox: one row a message, from publishing to its end. Times are integer milliseconds since 1970, UTC.
-- seq is the physical key and is never used again; message_id names the message for joins, inboxes and brokers.
-- next_attempt_at is the one eligibility column: the due time of a new message, the backoff of one that failed.
-- "outbox_times" keeps out what is no integer, which no client can read: one such row would stop every claim.
-- status: 0 ready, 1 in progress (leased), 2 done, 3 failed.
CREATE TABLE IF NOT EXISTS "main"."outbox" (
    seq             INTEGER PRIMARY KEY AUTOINCREMENT,
    message_id      TEXT    NOT NULL,
    uuid            TEXT    NOT NULL,
    topic           TEXT    NOT NULL,
    payload         BLOB    NOT NULL,
    headers         TEXT    NULL,
    correlation_id  TEXT    NULL,
    stream_key      TEXT    NULL,
    created_at      INTEGER NOT NULL,
    due_at          INTEGER NULL,
    next_attempt_at INTEGER NOT NULL,
    status          INTEGER NOT NULL DEFAULT 0,
    locked_until    INTEGER NULL,
    owner_token     TEXT    NULL,
    retry_count     INTEGER NOT NULL DEFAULT 0,
    last_error      TEXT    NULL,
    processed_at    INTEGER NULL,
    processed_by    TEXT    NULL,
    CONSTRAINT "outbox_lease" CHECK ((status = 1) = (owner_token IS NOT NULL) AND (status = 1) = (locked_until IS NOT NULL)),
    CONSTRAINT "outbox_times" CHECK (typeof(created_at) = 'integer' AND typeof(next_attempt_at) = 'integer'
        AND typeof(due_at) IN ('integer', 'null') AND typeof(locked_until) IN ('integer', 'null')
        AND typeof(processed_at) IN ('integer', 'null'))
);

-- By a name of its own, for statements to be held to it.
CREATE UNIQUE INDEX IF NOT EXISTS "main"."outbox_message_id" ON "outbox" (message_id);

-- A claim is a range seek here: only ready rows are in it, in the order in which they are taken.
CREATE INDEX IF NOT EXISTS "main"."outbox_ready" ON "outbox" (topic, next_attempt_at, seq) WHERE status = 0;

-- Expired leases, oldest first.
CREATE INDEX IF NOT EXISTS "main"."outbox_leased" ON "outbox" (locked_until) WHERE status = 1;

-- Ended rows by age, for purging and for listing what failed.
CREATE INDEX IF NOT EXISTS "main"."outbox_ended" ON "outbox" (status, processed_at) WHERE status >= 2;
