-- Closes an open join: it expects the steps that it has, and ends if they all have ended. A sealed join stays as it is.
-- Returns a refusal (seq -1 no such join, -2 it has ended), or the join if it has ended.
SELECT CASE WHEN EXISTS (SELECT 1 FROM "main"."outbox_join" AS j WHERE j.join_id = ?1 ->> '$.id') THEN -2 ELSE -1 END,
       ?1 ->> '$.id', NULL, NULL, NULL, NULL, NULL
WHERE NOT EXISTS (SELECT 1 FROM "main"."outbox_join" AS j WHERE j.join_id = ?1 ->> '$.id' AND j.status = 0);

UPDATE "main"."outbox_join"
SET expected_steps = (SELECT z.attached FROM "main"."outbox_join_size" AS z WHERE z.join_id = ?1 ->> '$.id')
WHERE join_id = ?1 ->> '$.id' AND expected_steps IS NULL;

UPDATE "main"."outbox_join" INDEXED BY "outbox_join_decided"
SET status = verdict, last_updated_at = CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)
WHERE status = 0 AND verdict <> 0
RETURNING 0, join_id,
    (SELECT o.topic FROM "outbox_join_wait" AS w CROSS JOIN "outbox" AS o INDEXED BY "outbox_message_id" ON o.message_id = w.message_id
     WHERE w.join_id = "outbox_join".join_id),
    status, expected_steps, completed_steps, failed_steps;
