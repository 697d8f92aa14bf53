-- The outbox for people: states by name, payloads and times as text.
CREATE VIEW IF NOT EXISTS "main"."outbox_view" AS
SELECT o.seq, o.message_id, o.uuid, o.topic, o.correlation_id, o.stream_key,
       CASE o.status WHEN 0 THEN 'ready' WHEN 1 THEN 'in progress' WHEN 2 THEN 'done' WHEN 3 THEN 'failed' WHEN 4 THEN 'log only' END AS state,
       o.status = 2 AS is_processed, o.retry_count, o.last_error, o.headers, CAST(o.payload AS TEXT) AS payload_text,
       datetime(o.created_at / 1000.0, 'unixepoch', 'subsec') AS created_at,
       datetime(o.due_at / 1000.0, 'unixepoch', 'subsec') AS due_at,
       datetime(o.next_attempt_at / 1000.0, 'unixepoch', 'subsec') AS next_attempt_at,
       datetime(o.locked_until / 1000.0, 'unixepoch', 'subsec') AS locked_until, o.owner_token,
       datetime(o.processed_at / 1000.0, 'unixepoch', 'subsec') AS processed_at, o.processed_by
FROM "outbox" AS o;
