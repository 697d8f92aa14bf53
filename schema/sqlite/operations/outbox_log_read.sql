-- Reads up to limit messages of a topic after a position, in order.
SELECT l.position, o.message_id, o.uuid, o.topic, o.payload, o.headers, o.correlation_id, o.stream_key, o.created_at, o.due_at, o.retry_count
FROM "main"."outbox_log" AS l INNER JOIN "main"."outbox" AS o ON o.message_id = l.message_id
WHERE l.topic = ?1 ->> '$.topic' AND l.position > ?1 ->> '$.after'
ORDER BY l.position
LIMIT (?1 ->> '$.limit');
