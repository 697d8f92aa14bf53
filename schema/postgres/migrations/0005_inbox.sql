-- The inbox: one row for each message that a handler has received. The queue is the table of the outbox, and queue_id is the
-- message there that the handler works on, or NULL if the message was handled as it was received. seen counts how often the
-- message arrived, beginning with 1. processed_at is set together with the handler's effects.
CREATE TABLE IF NOT EXISTS "public"."outbox_entry" (
    seq           bigint      GENERATED ALWAYS AS IDENTITY,
    source        text        COLLATE "C" NOT NULL,
    message_id    text        COLLATE "C" NOT NULL,
    handler       text        COLLATE "C" NOT NULL,
    content_hash  bytea       NOT NULL,
    first_seen_at timestamptz NOT NULL,
    last_seen_at  timestamptz NOT NULL,
    seen          integer     NOT NULL DEFAULT 1,
    queue_id      uuid        NULL,
    processed_at  timestamptz NULL,
    result        bytea       NULL,
    CONSTRAINT "outbox_entry_pk" PRIMARY KEY (seq),
    CONSTRAINT "outbox_entry_key" UNIQUE (handler, source, message_id)
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);

DO $outbox$
BEGIN
    -- Entries by age, for purging.
    IF to_regclass('"public"."outbox_entry_last_seen"') IS NULL THEN
        CREATE INDEX "outbox_entry_last_seen" ON "public"."outbox_entry" (last_seen_at);
    END IF;
END
$outbox$;

-- The entries with their states, which is defined here only: that of the message in the queue, or done if there is none. The
-- message is looked up for each entry: as a join of two tables, the whole queue could be read for one entry.
DO $outbox$
BEGIN
    IF to_regclass('"public"."outbox_entry_view"') IS NULL THEN
        CREATE VIEW "public"."outbox_entry_view" AS
        SELECT e.seq, e.source, e.message_id, e.handler, e.content_hash, e.first_seen_at, e.last_seen_at, e.seen, e.queue_id, e.processed_at,
               coalesce(s.status, 2)::int AS status,
               CASE coalesce(s.status, 2) WHEN 0 THEN 'ready' WHEN 1 THEN 'in progress' WHEN 2 THEN 'done' WHEN 3 THEN 'failed' END AS state,
               coalesce(s.retry_count, 0) AS attempts,
               (SELECT a.error FROM "public"."outbox_attempt" AS a WHERE a.seq = o.seq AND a.error IS NOT NULL ORDER BY a.attempt_id DESC LIMIT 1) AS last_error, e.result, "public"."outbox_text"(e.result) AS result_text
        FROM "public"."outbox_entry" AS e
        LEFT JOIN LATERAL (SELECT o.seq FROM "public"."outbox" AS o WHERE o.message_id = e.queue_id LIMIT 1) AS o ON true
        LEFT JOIN LATERAL (SELECT s.* FROM "public"."outbox_state" AS s WHERE s.seq = o.seq LIMIT 1) AS s ON true;
    END IF;
END
$outbox$;
