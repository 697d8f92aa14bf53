-- Inserts one message like outbox_enqueue, from typed parameters: JSON would cost a sixth more.
-- Parameters: message_id, uuid, topic, topic_key, payload, headers, correlation_id, stream_key, due_ms, delay_ms
INSERT INTO "main"."outbox_queued"
    (message_id, uuid, topic, topic_key, payload, headers, correlation_id, stream_key, created_at, due_at)
SELECT ?1, ?2, ?3, ?4, coalesce(?5, x''), ?6, ?7, ?8, c.moment, coalesce(?9, c.moment + ?10)
FROM (SELECT CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) AS moment) AS c
