-- Entries of an inbox by their keys, as they stand; unknown ones are left out. As outbox_entry_view has them,
-- which cannot be held to the index of the keys.
SELECT w.value ->> '$.n', e.content_hash, e.first_seen_at, e.last_seen_at, e.seen, e.queue_id, e.processed_at,
       coalesce(o.status, 2), coalesce(o.retry_count, 0), o.last_error, e.result
FROM json_each(?1, '$.entries') AS w
CROSS JOIN "main"."outbox_entry" AS e INDEXED BY "outbox_entry_key"
        ON e.handler = w.value ->> '$.handler' AND e.source = w.value ->> '$.source' AND e.message_id = w.value ->> '$.message_id'
LEFT JOIN "main"."outbox" AS o INDEXED BY "outbox_message_id" ON o.message_id = e.queue_id;
