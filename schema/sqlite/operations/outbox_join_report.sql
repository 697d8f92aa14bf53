-- Ends a step by report, in one join or, without an id, in all that have it; a second report changes nothing. Returns a
-- refusal (seq -1 no such join, -5 the message is no step of it) or the joins that have ended.
SELECT CASE WHEN EXISTS (SELECT 1 FROM "main"."outbox_join" AS j WHERE j.join_id = ?1 ->> '$.id') THEN -5 ELSE -1 END,
       ?1 ->> '$.id', NULL, NULL, NULL, NULL, NULL
WHERE ?1 ->> '$.id' IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM "main"."outbox_join_member" AS m WHERE m.join_id = ?1 ->> '$.id' AND m.message_id = ?1 ->> '$.message');

UPDATE "main"."outbox_join"
SET completed_steps = completed_steps + NOT (?1 ->> '$.failed'), failed_steps = failed_steps + (?1 ->> '$.failed'),
    last_updated_at = CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)
WHERE status = 0
  AND join_id IN (SELECT m.join_id FROM "main"."outbox_join_member" AS m INDEXED BY "outbox_join_member_message"
                  WHERE m.message_id = ?1 ->> '$.message' AND m.status = 0 AND (?1 ->> '$.id' IS NULL OR m.join_id = ?1 ->> '$.id'));

UPDATE "main"."outbox_join_member" INDEXED BY "outbox_join_member_message"
SET status = 1 + (?1 ->> '$.failed')
WHERE message_id = ?1 ->> '$.message' AND status = 0 AND (?1 ->> '$.id' IS NULL OR join_id = ?1 ->> '$.id');

UPDATE "main"."outbox_join" INDEXED BY "outbox_join_decided"
SET status = verdict, last_updated_at = CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)
WHERE status = 0 AND verdict <> 0
RETURNING 0, join_id,
    (SELECT o.topic FROM "outbox_join_wait" AS w CROSS JOIN "outbox" AS o INDEXED BY "outbox_message_id" ON o.message_id = w.message_id
     WHERE w.join_id = "outbox_join".join_id),
    status, expected_steps, completed_steps, failed_steps;
