-- Reads entries of an inbox by their keys; unknown ones are left out. Like outbox_entry_view, which cannot be held to the
-- index of the keys.
SELECT w.value ->> '$.n', e.content_hash, e.first_seen_at, e.last_seen_at, e.seen, e.queue_id, e.processed_at,
       coalesce((SELECT s.status FROM "main"."outbox_state" AS s WHERE s.seq = o.seq), 2),
       coalesce((SELECT s.retry_count FROM "main"."outbox_state" AS s WHERE s.seq = o.seq), 0),
       (SELECT a.error FROM "main"."outbox_attempt" AS a WHERE a.seq = o.seq AND a.error IS NOT NULL ORDER BY a.attempt_id DESC LIMIT 1), e.result
FROM json_each(?1, '$.entries') AS w
CROSS JOIN "main"."outbox_entry" AS e INDEXED BY "outbox_entry_key"
        ON e.handler = w.value ->> '$.handler' AND e.source = w.value ->> '$.source' AND e.message_id = w.value ->> '$.message_id'
LEFT JOIN "main"."outbox" AS o INDEXED BY "outbox_message_id" ON o.message_id = e.queue_id;
