-- Marks an entry as processed, with its handler's result; returns whether it exists.
UPDATE "main"."outbox_entry"
SET processed_at = coalesce(processed_at, CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)), result = ?2
WHERE handler = ?1 ->> '$.handler' AND source = ?1 ->> '$.source' AND message_id = ?1 ->> '$.message_id';

SELECT changes();
