-- Ends messages that nobody holds: ready ones as failed, which counts them in their joins; or, with replaced, failed ones as
-- done, because another message has taken the place of each: those were counted when they failed. The reason becomes an
-- attempt with outcome 5. Returns a row with the seq of each and, under seq 0, the joins that have ended. A trigger takes a
-- message of a stream out of its queue, so that those behind it go on. The upserts insert no state: see outbox_claim.
INSERT INTO "main"."outbox_ended" (seq)
SELECT n.seq
FROM (SELECT DISTINCT (SELECT o.seq FROM "main"."outbox" AS o WHERE o.message_id = i.value) AS seq FROM json_each(?1, '$.ids') AS i) AS n
WHERE (SELECT CASE WHEN ?1 ->> '$.replaced' THEN s.status = 3 ELSE s.status IN (0, 5) END FROM "main"."outbox_state" AS s WHERE s.seq = n.seq);

INSERT OR IGNORE INTO "main"."outbox_worker" (name, started_at)
VALUES (?1 ->> '$.worker', CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER));

INSERT INTO "main"."outbox_attempt" (seq, attempt_id, happened_at, worker_id, attempt, outcome, error)
SELECT e.seq, coalesce((SELECT max(a.attempt_id) FROM "main"."outbox_attempt" AS a WHERE a.seq = e.seq), 0) + 1, CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER),
       (SELECT w.worker_id FROM "main"."outbox_worker" AS w WHERE w.name = ?1 ->> '$.worker'),
       (SELECT s.retry_count FROM "main"."outbox_state" AS s WHERE s.seq = e.seq), 5, ?1 ->> '$.reason'
FROM "main"."outbox_ended" AS e;

INSERT INTO "main"."outbox_state" (seq, topic_key, next_attempt_at, processed_at, worker_id, status)
SELECT e.seq, 0, 0, CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER),
       (SELECT w.worker_id FROM "main"."outbox_worker" AS w WHERE w.name = ?1 ->> '$.worker'), CASE WHEN ?1 ->> '$.replaced' THEN 2 ELSE 3 END
FROM "main"."outbox_ended" AS e WHERE true
ON CONFLICT (seq) DO UPDATE
SET status = excluded.status, processed_at = excluded.processed_at, worker_id = excluded.worker_id,
    flags = CASE WHEN stream_id IS NULL THEN flags ELSE flags | 4 END;

SELECT e.seq, (SELECT o.message_id FROM "main"."outbox" AS o WHERE o.seq = e.seq), NULL, NULL, NULL, NULL, NULL FROM "main"."outbox_ended" AS e;

DELETE FROM "main"."outbox_ended";

-- The rest is for steps of joins, which have flag 1.
SELECT EXISTS (SELECT 1 FROM json_each(?1, '$.ids') AS i
               WHERE (SELECT s.flags & 1 FROM "main"."outbox_state" AS s
                      WHERE s.seq = (SELECT o.seq FROM "main"."outbox" AS o WHERE o.message_id = i.value) AND s.status = 3));

WITH ended AS MATERIALIZED (
    SELECT DISTINCT i.value AS message_id FROM json_each(?1, '$.ids') AS i
    WHERE (SELECT s.flags & 1 FROM "main"."outbox_state" AS s
           WHERE s.seq = (SELECT o.seq FROM "main"."outbox" AS o WHERE o.message_id = i.value) AND s.status = 3))
INSERT INTO "main"."outbox_join" (join_id, created_at, failed_steps, last_updated_at)
SELECT d.join_id, 0, d.dead, CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)
FROM (SELECT m.join_id, count(*) AS dead
      FROM ended AS e CROSS JOIN "main"."outbox_join_member" AS m INDEXED BY "outbox_join_member_message" ON m.message_id = e.message_id
      WHERE m.status = 0 AND m.ends_by = 0
      GROUP BY m.join_id) AS d
WHERE (SELECT j.status FROM "main"."outbox_join" AS j WHERE j.join_id = d.join_id) = 0
ON CONFLICT (join_id) DO UPDATE
SET failed_steps = failed_steps + excluded.failed_steps, last_updated_at = excluded.last_updated_at;

WITH ended AS MATERIALIZED (
    SELECT DISTINCT i.value AS message_id FROM json_each(?1, '$.ids') AS i
    WHERE (SELECT s.flags & 1 FROM "main"."outbox_state" AS s
           WHERE s.seq = (SELECT o.seq FROM "main"."outbox" AS o WHERE o.message_id = i.value) AND s.status = 3))
INSERT INTO "main"."outbox_join_member" (join_id, message_id, status, created_at)
SELECT m.join_id, m.message_id, 2, 0
FROM ended AS e CROSS JOIN "main"."outbox_join_member" AS m INDEXED BY "outbox_join_member_message" ON m.message_id = e.message_id
WHERE m.status = 0 AND m.ends_by = 0
ON CONFLICT (join_id, message_id) DO UPDATE SET status = excluded.status;

UPDATE "main"."outbox_join" INDEXED BY "outbox_join_decided"
SET status = verdict, last_updated_at = CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)
WHERE status = 0 AND verdict <> 0
RETURNING 0, join_id,
    (SELECT o.topic FROM "outbox_join_wait" AS w CROSS JOIN "outbox" AS o INDEXED BY "outbox_message_id" ON o.message_id = w.message_id
     WHERE w.join_id = "outbox_join".join_id),
    status, expected_steps, completed_steps, failed_steps;
