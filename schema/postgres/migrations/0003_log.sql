-- The outbox read as a log. Numbers assigned by an insert become visible out of order, and a reader that goes by them misses
-- late commits. So each message waits in outbox_log_pending, and a sequencer gives positions to committed ones. A message
-- for the log alone has no state, so no claim takes it.
CREATE TABLE IF NOT EXISTS "public"."outbox_log_pending" (
    seq        bigint NOT NULL,
    message_id uuid   NOT NULL,
    topic      text   COLLATE "C" NOT NULL,
    CONSTRAINT "outbox_log_pending_pk" PRIMARY KEY (seq)
) WITH (autovacuum_vacuum_scale_factor = 0.02);

DO $outbox$
BEGIN
    IF to_regclass('"public"."outbox_log_pending_message"') IS NULL THEN
        CREATE INDEX "outbox_log_pending_message" ON "public"."outbox_log_pending" (message_id);
    END IF;
END
$outbox$;

CREATE TABLE IF NOT EXISTS "public"."outbox_log" (
    position   bigint      NOT NULL,
    topic      text        COLLATE "C" NOT NULL,
    message_id uuid        NOT NULL,
    logged_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT "outbox_log_pk" PRIMARY KEY (position)
);

DO $outbox$
BEGIN
    IF to_regclass('"public"."outbox_log_topic"') IS NULL THEN
        CREATE INDEX "outbox_log_topic" ON "public"."outbox_log" (topic, position);
    END IF;
    IF to_regclass('"public"."outbox_log_message"') IS NULL THEN
        CREATE INDEX "outbox_log_message" ON "public"."outbox_log" (message_id);
    END IF;
END
$outbox$;

-- The last position given. The sequencer locks this row to give the next. low, high and writers are what they are in
-- outbox_router, of pending messages by their seq. checked_at: when none was found up to low.
CREATE TABLE IF NOT EXISTS "public"."outbox_log_counter" (
    id         smallint    NOT NULL,
    position   bigint      NOT NULL,
    low        bigint      NOT NULL DEFAULT 0,
    high       bigint      NOT NULL DEFAULT 0,
    writers    text[]      NOT NULL DEFAULT '{}',
    checked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT "outbox_log_counter_pk" PRIMARY KEY (id)
);

-- How far each consumer group has read in each topic, and who reads for it. attempts have been spent on the message at
-- tried. version and shape are the reader's, so that a newer one can take over. interrupted says that a reader
-- never gave its lease back, and none has moved the group on since: a message may have killed it.
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

-- Messages that a group gave up and passed. A message stays in the log while its row is here; requeued marks those to
-- deliver to the group again.
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

DO $outbox$
BEGIN
    IF to_regclass('"public"."outbox_log_dead_position"') IS NULL THEN
        CREATE INDEX "outbox_log_dead_position" ON "public"."outbox_log_dead" (position);
    END IF;
    IF to_regclass('"public"."outbox_log_dead_requeued"') IS NULL THEN
        CREATE INDEX "outbox_log_dead_requeued" ON "public"."outbox_log_dead" (group_name, topic, position) WHERE requeued;
    END IF;
END
$outbox$;

-- If the counter was lost, it continues after the last known position.
INSERT INTO "public"."outbox_log_counter" (id, position)
SELECT 1, greatest((SELECT coalesce(max(l.position), 0) FROM "public"."outbox_log" AS l),
                   (SELECT coalesce(max(g.position), 0) FROM "public"."outbox_log_group" AS g))
ON CONFLICT (id) DO NOTHING;

-- The ids of messages that must be kept after they have ended. The joins replace this view with one that adds theirs, and
-- this file does not overwrite it.
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
