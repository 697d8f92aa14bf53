-- Adds entries to an inbox, and touches existing ones; returns what outbox_entry_get returns. It waits for an entry that is
-- not committed yet.
INSERT INTO "main"."outbox_entry" (source, message_id, handler, content_hash, first_seen_at, last_seen_at, queue_id, processed_at)
SELECT w.value ->> '$.source', w.value ->> '$.message_id', w.value ->> '$.handler', unhex(w.value ->> '$.hash'), c.moment, c.moment,
       w.value ->> '$.queue_id', CASE WHEN w.value ->> '$.queue_id' IS NULL THEN c.moment END
FROM json_each(?1, '$.entries') AS w,
     (SELECT CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) AS moment) AS c
WHERE true
ON CONFLICT (handler, source, message_id) DO UPDATE SET seen = seen + 1, last_seen_at = excluded.last_seen_at;

SELECT w.value ->> '$.n', e.content_hash, e.first_seen_at, e.last_seen_at, e.seen, e.queue_id, e.processed_at,
       coalesce((SELECT s.status FROM "main"."outbox_state" AS s WHERE s.seq = o.seq), 2),
       coalesce((SELECT s.retry_count FROM "main"."outbox_state" AS s WHERE s.seq = o.seq), 0),
       (SELECT a.error FROM "main"."outbox_attempt" AS a WHERE a.seq = o.seq AND a.error IS NOT NULL ORDER BY a.attempt_id DESC LIMIT 1), e.result
FROM json_each(?1, '$.entries') AS w
CROSS JOIN "main"."outbox_entry" AS e INDEXED BY "outbox_entry_key"
        ON e.handler = w.value ->> '$.handler' AND e.source = w.value ->> '$.source' AND e.message_id = w.value ->> '$.message_id'
LEFT JOIN "main"."outbox" AS o INDEXED BY "outbox_message_id" ON o.message_id = e.queue_id;
