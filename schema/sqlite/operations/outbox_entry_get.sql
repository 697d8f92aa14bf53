-- Entries of an inbox by their keys, as they stand; unknown ones are left out.
SELECT w.value ->> '$.n', v.content_hash, v.first_seen_at, v.last_seen_at, v.seen, v.queue_id, v.processed_at,
       v.status, v.attempts, v.last_error, v.result
FROM json_each(?1, '$.entries') AS w
INNER JOIN "main"."outbox_entry_view" AS v
        ON v.handler = w.value ->> '$.handler' AND v.source = w.value ->> '$.source' AND v.message_id = w.value ->> '$.message_id';
