-- Joins: groups of messages whose end is waited for. The outbox table does not know about them. status: 0 pending, 1
-- completed, 2 failed, 3 cancelled. verdict is what status should be according to the counters, and the only place that says
-- when a join ends. expected_steps is NULL until an open join is sealed; quorum is set if not all steps must complete.
CREATE TABLE IF NOT EXISTS "main"."outbox_join" (
    join_id         TEXT    NOT NULL PRIMARY KEY,
    grouping_key    TEXT    NULL,
    expected_steps  INTEGER NULL,
    completed_steps INTEGER NOT NULL DEFAULT 0,
    failed_steps    INTEGER NOT NULL DEFAULT 0,
    quorum          INTEGER NULL,
    fail_fast       INTEGER NOT NULL DEFAULT 0,
    cancelled       INTEGER NOT NULL DEFAULT 0,
    verdict         INTEGER GENERATED ALWAYS AS (CASE
        WHEN cancelled THEN 3
        WHEN completed_steps >= coalesce(quorum, expected_steps) THEN 1
        WHEN completed_steps + failed_steps >= expected_steps THEN 2
        WHEN failed_steps > expected_steps - quorum THEN 2
        WHEN fail_fast AND failed_steps > 0 THEN 2
        ELSE 0 END) VIRTUAL,
    status          INTEGER NOT NULL DEFAULT 0,
    created_at      INTEGER NOT NULL,
    last_updated_at INTEGER NOT NULL,
    metadata        TEXT    NULL
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS "main"."outbox_join_group" ON "outbox_join" (grouping_key, join_id) WHERE grouping_key IS NOT NULL;

-- Pending joins, in the order in which they started.
CREATE INDEX IF NOT EXISTS "main"."outbox_join_pending" ON "outbox_join" (join_id) WHERE status = 0;

-- Ended joins for purging.
CREATE INDEX IF NOT EXISTS "main"."outbox_join_ended" ON "outbox_join" (created_at) WHERE status <> 0;

-- Joins that end in this transaction: empty outside of one.
CREATE INDEX IF NOT EXISTS "main"."outbox_join_decided" ON "outbox_join" (join_id) WHERE status = 0 AND verdict <> 0;

-- The steps. status: 0 pending, 1 completed, 2 failed; it changes once. ends_by: 0 when the message is settled, 1 by a
-- report.
CREATE TABLE IF NOT EXISTS "main"."outbox_join_member" (
    join_id    TEXT    NOT NULL,
    message_id TEXT    NOT NULL,
    ends_by    INTEGER NOT NULL DEFAULT 0,
    status     INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (join_id, message_id),
    FOREIGN KEY (join_id) REFERENCES "outbox_join" (join_id) ON DELETE CASCADE
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS "main"."outbox_join_member_message" ON "outbox_join_member" (message_id);

-- How many steps a join has.
CREATE TABLE IF NOT EXISTS "main"."outbox_join_size" (
    join_id  TEXT    NOT NULL PRIMARY KEY,
    attached INTEGER NOT NULL DEFAULT 0,
    FOREIGN KEY (join_id) REFERENCES "outbox_join" (join_id) ON DELETE CASCADE
) WITHOUT ROWID;

-- Messages that wait for the end of a join.
CREATE TABLE IF NOT EXISTS "main"."outbox_join_wait" (
    join_id     TEXT    NOT NULL,
    message_id  TEXT    NOT NULL,
    deadline_at INTEGER NULL,
    PRIMARY KEY (join_id, message_id),
    FOREIGN KEY (join_id) REFERENCES "outbox_join" (join_id) ON DELETE CASCADE
) WITHOUT ROWID;

-- Ending a join makes the messages that wait for it due. Their states exist, so the upsert inserts nothing; an UPDATE would
-- scan all states if statistics say that there are almost none.
CREATE TRIGGER IF NOT EXISTS "main"."outbox_join_wake" AFTER UPDATE OF status ON "outbox_join" WHEN NEW.status <> 0
BEGIN
    INSERT INTO "outbox_state" (seq, topic_key, next_attempt_at)
    SELECT k.seq, 0, NEW.last_updated_at
    FROM (SELECT (SELECT s.seq FROM "outbox_state" AS s
                  WHERE s.seq = (SELECT o.seq FROM "outbox" AS o WHERE o.message_id = w.message_id) AND s.status = 0) AS seq
          FROM "outbox_join_wait" AS w WHERE w.join_id = NEW.join_id) AS k
    WHERE k.seq IS NOT NULL
    ON CONFLICT (seq) DO UPDATE SET next_attempt_at = excluded.next_attempt_at;
END;

-- Cleans up after a join, even if foreign keys are not enforced.
CREATE TRIGGER IF NOT EXISTS "main"."outbox_join_gone" AFTER DELETE ON "outbox_join"
BEGIN
    DELETE FROM "outbox_join_member" WHERE join_id = OLD.join_id;
    DELETE FROM "outbox_join_size" WHERE join_id = OLD.join_id;
    DELETE FROM "outbox_join_wait" WHERE join_id = OLD.join_id;
END;

DROP VIEW IF EXISTS "main"."outbox_kept";
-- Steps are found by the message's id, whatever the statistics say.
CREATE VIEW "main"."outbox_kept" AS
SELECT l.message_id FROM "outbox_log" AS l
UNION ALL
SELECT p.message_id FROM "outbox_log_pending" AS p
UNION ALL
SELECT m.message_id
FROM "outbox_join_member" AS m INDEXED BY "outbox_join_member_message" CROSS JOIN "outbox_join" AS j ON j.join_id = m.join_id
WHERE j.status = 0;
