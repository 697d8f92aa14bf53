-- The whole state of messages by message id, for people and tools; unknown ids are left out.
SELECT o.seq, o.message_id, o.uuid, o.topic, o.payload, o.headers, o.correlation_id, o.stream_key,
       o.created_at, o.due_at, o.retry_count, o.status, o.next_attempt_at, o.locked_until,
       o.owner_token, o.last_error, o.processed_at, o.processed_by
FROM "main"."outbox" AS o INDEXED BY "outbox_message_id"
WHERE o.message_id IN (SELECT i.value FROM json_each(?1, '$.ids') AS i);
