-- The most recent dead letters, of one topic or of all.
SELECT o.seq, o.message_id, o.uuid, o.topic, o.payload, o.headers, o.correlation_id, o.stream_key,
       o.created_at, o.due_at, o.retry_count, o.status, o.next_attempt_at, o.locked_until,
       o.owner_token, o.last_error, o.processed_at, o.processed_by
FROM "main"."outbox" AS o INDEXED BY "outbox_ended"
WHERE o.status >= 2 AND o.status = 3 AND (?1 ->> '$.topic' IS NULL OR o.topic = ?1 ->> '$.topic')
ORDER BY o.processed_at DESC, o.seq DESC
LIMIT (?1 ->> '$.limit');
