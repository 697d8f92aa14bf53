-- Joins: groups of messages whose end is waited for. The outbox table does not know about them. status: 0 pending, 1
-- completed, 2 failed, 3 cancelled. verdict is what status should be according to the counters, and the only place that says
-- when a join ends. expected_steps is NULL until an open join is sealed; quorum is set if not all steps must complete.
CREATE TABLE IF NOT EXISTS "public"."outbox_join" (
    join_id         uuid        NOT NULL,
    grouping_key    text        COLLATE "C" NULL,
    expected_steps  integer     NULL,
    completed_steps integer     NOT NULL DEFAULT 0,
    failed_steps    integer     NOT NULL DEFAULT 0,
    quorum          integer     NULL,
    fail_fast       boolean     NOT NULL DEFAULT false,
    cancelled       boolean     NOT NULL DEFAULT false,
    verdict         smallint    GENERATED ALWAYS AS (CASE
        WHEN cancelled THEN 3
        WHEN completed_steps >= coalesce(quorum, expected_steps) THEN 1
        WHEN completed_steps + failed_steps >= expected_steps THEN 2
        WHEN failed_steps > expected_steps - quorum THEN 2
        WHEN fail_fast AND failed_steps > 0 THEN 2
        ELSE 0 END) STORED,
    status          smallint    NOT NULL DEFAULT 0,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    metadata        text        NULL,
    CONSTRAINT "outbox_join_pk" PRIMARY KEY (join_id)
) WITH (fillfactor = 80);

DO $outbox$
BEGIN
    IF to_regclass('"public"."outbox_join_group"') IS NULL THEN
        CREATE INDEX "outbox_join_group" ON "public"."outbox_join" (grouping_key, join_id) WHERE grouping_key IS NOT NULL;
    END IF;

    -- Pending joins, in the order in which they started.
    IF to_regclass('"public"."outbox_join_pending"') IS NULL THEN
        CREATE INDEX "outbox_join_pending" ON "public"."outbox_join" (join_id) WHERE status = 0;
    END IF;

    -- Ended joins for purging. last_updated_at is in no index, because every count would have to write to it.
    IF to_regclass('"public"."outbox_join_ended"') IS NULL THEN
        CREATE INDEX "outbox_join_ended" ON "public"."outbox_join" (created_at) WHERE status <> 0;
    END IF;
END
$outbox$;

-- The steps. status: 0 pending, 1 completed, 2 failed; it changes once. ends_by: 0 when the message is settled, 1 by a
-- report.
CREATE TABLE IF NOT EXISTS "public"."outbox_join_member" (
    join_id    uuid        NOT NULL,
    message_id uuid        NOT NULL,
    ends_by    smallint    NOT NULL DEFAULT 0,
    status     smallint    NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT "outbox_join_member_pk" PRIMARY KEY (join_id, message_id),
    CONSTRAINT "outbox_join_member_join" FOREIGN KEY (join_id) REFERENCES "public"."outbox_join" (join_id) ON DELETE CASCADE
) WITH (fillfactor = 80);

DO $outbox$
BEGIN
    IF to_regclass('"public"."outbox_join_member_message"') IS NULL THEN
        CREATE INDEX "outbox_join_member_message" ON "public"."outbox_join_member" (message_id);
    END IF;
END
$outbox$;

-- How many steps a join has. Separate from the join's row, so that a long transaction that attaches does not keep others
-- from counting.
CREATE TABLE IF NOT EXISTS "public"."outbox_join_size" (
    join_id  uuid    NOT NULL,
    attached integer NOT NULL DEFAULT 0,
    CONSTRAINT "outbox_join_size_pk" PRIMARY KEY (join_id),
    CONSTRAINT "outbox_join_size_join" FOREIGN KEY (join_id) REFERENCES "public"."outbox_join" (join_id) ON DELETE CASCADE
) WITH (fillfactor = 80);

-- Messages that wait for the end of a join, which makes them due.
CREATE TABLE IF NOT EXISTS "public"."outbox_join_wait" (
    join_id     uuid        NOT NULL,
    message_id  uuid        NOT NULL,
    deadline_at timestamptz NULL,
    CONSTRAINT "outbox_join_wait_pk" PRIMARY KEY (join_id, message_id),
    CONSTRAINT "outbox_join_wait_join" FOREIGN KEY (join_id) REFERENCES "public"."outbox_join" (join_id) ON DELETE CASCADE
);

-- Replaces the view of the log, once. The status of a step's join is looked up by key: as a join of two tables, all joins could be
-- read first.
DO $outbox$
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_rewrite AS r INNER JOIN pg_depend AS d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
        WHERE r.ev_class = to_regclass('"public"."outbox_kept"') AND d.refobjid = to_regclass('"public"."outbox_join_member"')) THEN
        CREATE OR REPLACE VIEW "public"."outbox_kept" AS
        SELECT l.message_id FROM "public"."outbox_log" AS l
        UNION ALL
        SELECT p.message_id FROM "public"."outbox_log_pending" AS p
        UNION ALL
        SELECT m.message_id
        FROM "public"."outbox_join_member" AS m
        WHERE (SELECT j.status FROM "public"."outbox_join" AS j WHERE j.join_id = m.join_id) = 0;
    END IF;
END
$outbox$;
