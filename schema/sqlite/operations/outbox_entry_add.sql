-- Adds entries to an inbox, and touches those that are there already; answers as outbox_entry_get does. Whoever comes upon
-- an entry that is not committed yet waits for it.
INSERT INTO "main"."outbox_entry" (source, message_id, handler, content_hash, first_seen_at, last_seen_at, queue_id, processed_at)
SELECT w.value ->> '$.source', w.value ->> '$.message_id', w.value ->> '$.handler', unhex(w.value ->> '$.hash'), c.moment, c.moment,
       w.value ->> '$.queue_id', CASE WHEN w.value ->> '$.queue_id' IS NULL THEN c.moment END
FROM json_each(?1, '$.entries') AS w,
     (SELECT CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) AS moment) AS c
WHERE true
ON CONFLICT (handler, source, message_id) DO UPDATE SET seen = seen + 1, last_seen_at = excluded.last_seen_at;

SELECT w.value ->> '$.n', v.content_hash, v.first_seen_at, v.last_seen_at, v.seen, v.queue_id, v.processed_at,
       v.status, v.attempts, v.last_error, v.result
FROM json_each(?1, '$.entries') AS w
INNER JOIN "main"."outbox_entry_view" AS v
        ON v.handler = w.value ->> '$.handler' AND v.source = w.value ->> '$.source' AND v.message_id = w.value ->> '$.message_id';
