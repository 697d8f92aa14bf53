-- Deletes joins that ended longer ago than the given age, first their steps, up to limit rows; returns the number of rows,
-- and of joins among them. Joins that a message still waits for are kept, and those that began longer than within_ms ago,
-- if it is given.
DELETE FROM "main"."outbox_join_member"
WHERE (join_id, message_id) IN (
    SELECT m.join_id, m.message_id
    FROM "main"."outbox_join" AS j INDEXED BY "outbox_join_ended" CROSS JOIN "main"."outbox_join_member" AS m ON m.join_id = j.join_id
    WHERE j.status <> 0 AND j.created_at < CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) - (?1 ->> '$.older_than_ms')
      AND j.created_at >= coalesce(CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) - (?1 ->> '$.within_ms'), 0)
      AND j.last_updated_at < CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) - (?1 ->> '$.older_than_ms')
      AND NOT EXISTS (SELECT 1 FROM "main"."outbox_join_wait" AS w
                      WHERE w.join_id = j.join_id
                        AND (SELECT s.status FROM "main"."outbox_state" AS s
                             WHERE s.seq = (SELECT o.seq FROM "main"."outbox" AS o WHERE o.message_id = w.message_id)) <> 2)
    LIMIT (?1 ->> '$.limit'));

SELECT changes(), 0;

DELETE FROM "main"."outbox_join"
WHERE join_id IN (
    SELECT j.join_id FROM "main"."outbox_join" AS j INDEXED BY "outbox_join_ended"
    WHERE j.status <> 0 AND j.created_at < CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) - (?1 ->> '$.older_than_ms')
      AND j.created_at >= coalesce(CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) - (?1 ->> '$.within_ms'), 0)
      AND j.last_updated_at < CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) - (?1 ->> '$.older_than_ms')
      AND NOT EXISTS (SELECT 1 FROM "main"."outbox_join_member" AS m WHERE m.join_id = j.join_id)
      AND NOT EXISTS (SELECT 1 FROM "main"."outbox_join_wait" AS w
                      WHERE w.join_id = j.join_id
                        AND (SELECT s.status FROM "main"."outbox_state" AS s
                             WHERE s.seq = (SELECT o.seq FROM "main"."outbox" AS o WHERE o.message_id = w.message_id)) <> 2)
    LIMIT (?1 ->> '$.limit'));

SELECT changes(), changes();
