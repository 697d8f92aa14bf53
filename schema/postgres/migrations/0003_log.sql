-- The outbox read as a log. Numbers that are given at the insert commit out of order, and whoever reads by them misses what
-- commits late. So each message waits in outbox_log_pending, and a sequencer gives positions to those that are committed.
-- A message for the log alone has no state, and so no claim takes it.
CREATE TABLE IF NOT EXISTS "public"."outbox_log_pending" (
    seq        bigint NOT NULL,
    message_id uuid   NOT NULL,
    topic      text   COLLATE "C" NOT NULL,
    CONSTRAINT "outbox_log_pending_pk" PRIMARY KEY (seq)
) WITH (autovacuum_vacuum_scale_factor = 0.02);

CREATE INDEX IF NOT EXISTS "outbox_log_pending_message" ON "public"."outbox_log_pending" (message_id);

CREATE TABLE IF NOT EXISTS "public"."outbox_log" (
    position   bigint      NOT NULL,
    topic      text        COLLATE "C" NOT NULL,
    message_id uuid        NOT NULL,
    logged_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT "outbox_log_pk" PRIMARY KEY (position)
);

CREATE INDEX IF NOT EXISTS "outbox_log_topic" ON "public"."outbox_log" (topic, position);
CREATE INDEX IF NOT EXISTS "outbox_log_message" ON "public"."outbox_log" (message_id);

-- The last position that was given. Whoever gives the next holds the row.
CREATE TABLE IF NOT EXISTS "public"."outbox_log_counter" (
    id       smallint NOT NULL,
    position bigint   NOT NULL,
    CONSTRAINT "outbox_log_counter_pk" PRIMARY KEY (id)
);

-- How far each consumer group has come in each topic, and who reads for it. Of the message at tried it has spent attempts;
-- version and shape are those of the reader, so that a newer one takes over. interrupted says that the reader before that one
-- never gave its lease back: a message may have killed it.
CREATE TABLE IF NOT EXISTS "public"."outbox_log_group" (
    group_name   text        COLLATE "C" NOT NULL,
    topic        text        COLLATE "C" NOT NULL,
    position     bigint      NOT NULL DEFAULT 0,
    owner_token  uuid        NULL,
    locked_until timestamptz NULL,
    tried        bigint      NOT NULL DEFAULT 0,
    attempts     integer     NOT NULL DEFAULT 0,
    version      bigint      NOT NULL DEFAULT 0,
    shape        bigint      NOT NULL DEFAULT 0,
    interrupted  boolean     NOT NULL DEFAULT false,
    CONSTRAINT "outbox_log_group_pk" PRIMARY KEY (group_name, topic)
) WITH (fillfactor = 50);

-- What a group has given up and passed. The message stays in the log for as long as its row is here; requeued is what the
-- group is to have again.
CREATE TABLE IF NOT EXISTS "public"."outbox_log_dead" (
    group_name text        COLLATE "C" NOT NULL,
    topic      text        COLLATE "C" NOT NULL,
    position   bigint      NOT NULL,
    message_id uuid        NOT NULL,
    attempts   integer     NOT NULL,
    reason     text        NULL,
    failed_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    requeued   boolean     NOT NULL DEFAULT false,
    CONSTRAINT "outbox_log_dead_pk" PRIMARY KEY (group_name, position, topic)
);

CREATE INDEX IF NOT EXISTS "outbox_log_dead_position" ON "public"."outbox_log_dead" (position);
CREATE INDEX IF NOT EXISTS "outbox_log_dead_requeued" ON "public"."outbox_log_dead" (group_name, topic, position) WHERE requeued;

-- Where the counter was lost, it goes on after the last position that anybody knows of.
INSERT INTO "public"."outbox_log_counter" (id, position)
SELECT 1, greatest((SELECT coalesce(max(l.position), 0) FROM "public"."outbox_log" AS l),
                   (SELECT coalesce(max(g.position), 0) FROM "public"."outbox_log_group" AS g))
ON CONFLICT (id) DO NOTHING;

-- The ids of messages that are not deleted when they have ended. Joins put theirs in by a view of their own, which this one
-- does not replace.
DO $outbox$
BEGIN
    IF to_regclass('"public"."outbox_kept"') IS NULL THEN
        CREATE VIEW "public"."outbox_kept" AS
        SELECT l.message_id FROM "public"."outbox_log" AS l
        UNION ALL
        SELECT p.message_id FROM "public"."outbox_log_pending" AS p;
    END IF;
END
$outbox$;
