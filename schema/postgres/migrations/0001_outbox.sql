-- The outbox: one row a message, from publishing to its end.
-- seq is the physical key and grows with every insert; message_id names the message for joins, inboxes and brokers.
-- next_attempt_at is the one eligibility column: the due time of a new message, the backoff of one that failed.
-- "outbox_times" keeps out infinity, which no client can read: one such row would stop every claim.
-- status: 0 ready, 1 in progress (leased), 2 done, 3 failed.
CREATE TABLE IF NOT EXISTS "public"."outbox" (
    seq             bigint      GENERATED ALWAYS AS IDENTITY,
    message_id      uuid        NOT NULL,
    uuid            text        NOT NULL,
    topic           text        COLLATE "C" NOT NULL,
    payload         bytea       NOT NULL,
    headers         text        NULL,
    correlation_id  text        NULL,
    stream_key      text        COLLATE "C" NULL,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    due_at          timestamptz NULL,
    next_attempt_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    status          smallint    NOT NULL DEFAULT 0,
    locked_until    timestamptz NULL,
    owner_token     uuid        NULL,
    retry_count     integer     NOT NULL DEFAULT 0,
    last_error      text        NULL,
    processed_at    timestamptz NULL,
    processed_by    text        NULL,
    CONSTRAINT "outbox_pk" PRIMARY KEY (seq),
    CONSTRAINT "outbox_message_id" UNIQUE (message_id),
    CONSTRAINT "outbox_lease" CHECK ((status = 1) = (owner_token IS NOT NULL) AND (status = 1) = (locked_until IS NOT NULL)),
    CONSTRAINT "outbox_times" CHECK (isfinite(created_at) AND isfinite(due_at) AND isfinite(next_attempt_at)
        AND isfinite(locked_until) AND isfinite(processed_at))
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);

-- A claim is a range seek here: only ready rows are in it, in the order in which they are taken.
CREATE INDEX IF NOT EXISTS "outbox_ready" ON "public"."outbox" (topic, next_attempt_at, seq) WHERE status = 0;

-- Expired leases, oldest first.
CREATE INDEX IF NOT EXISTS "outbox_leased" ON "public"."outbox" (locked_until) WHERE status = 1;

-- Ended rows by age, for purging and for listing what failed.
CREATE INDEX IF NOT EXISTS "outbox_ended" ON "public"."outbox" (status, processed_at) WHERE status >= 2;
