-- Ends a join as cancelled; its waits take the failure path. Returns a refusal (seq -1 no such join, -2 it has ended),
-- otherwise the join.
SELECT CASE WHEN EXISTS (SELECT 1 FROM "main"."outbox_join" AS j WHERE j.join_id = ?1 ->> '$.id') THEN -2 ELSE -1 END,
       ?1 ->> '$.id', NULL, NULL, NULL, NULL, NULL
WHERE NOT EXISTS (SELECT 1 FROM "main"."outbox_join" AS j WHERE j.join_id = ?1 ->> '$.id' AND j.status = 0);

UPDATE "main"."outbox_join" SET cancelled = 1 WHERE join_id = ?1 ->> '$.id';

UPDATE "main"."outbox_join" INDEXED BY "outbox_join_decided"
SET status = verdict, last_updated_at = CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)
WHERE status = 0 AND verdict <> 0
RETURNING 0, join_id,
    (SELECT o.topic FROM "outbox_join_wait" AS w CROSS JOIN "outbox" AS o INDEXED BY "outbox_message_id" ON o.message_id = w.message_id
     WHERE w.join_id = "outbox_join".join_id),
    status, expected_steps, completed_steps, failed_steps;
