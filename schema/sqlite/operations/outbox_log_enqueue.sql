-- Inserts messages as outbox_enqueue does, and into the log: they get a position once they are committed.
-- status 0 is also for the queue, 4 for the log alone.
INSERT INTO "main"."outbox"
    (message_id, uuid, topic, payload, headers, correlation_id, stream_key, created_at, due_at, next_attempt_at,
     status, processed_at, processed_by)
SELECT m.id, m.uuid, m.topic, m.payload, m.headers, m.correlation_id, m.stream_key, m.moment, m.due, max(coalesce(m.due, 0), m.moment),
       m.status, CASE WHEN m.status = 4 THEN m.moment END, CASE WHEN m.status = 4 THEN 'log' END
FROM (SELECT e.key AS n, e.value ->> '$.id' AS id, e.value ->> '$.uuid' AS uuid, e.value ->> '$.topic' AS topic, coalesce(e.value ->> '$.status', 0) AS status,
             coalesce(substr(?2, (e.value ->> '$.at') + 1, e.value ->> '$.size'), x'') AS payload,
             coalesce(e.value ->> '$.headers_text', e.value -> '$.headers') AS headers, e.value ->> '$.correlation_id' AS correlation_id,
             e.value ->> '$.stream_key' AS stream_key,
             coalesce(e.value ->> '$.due_ms', c.moment + (e.value ->> '$.delay_ms')) AS due, c.moment
      FROM json_each(?1) AS e,
           (SELECT CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) AS moment) AS c) AS m
ORDER BY m.n;

INSERT INTO "main"."outbox_log_pending" (seq, message_id, topic)
SELECT o.seq, o.message_id, o.topic
FROM json_each(?1) AS e CROSS JOIN "main"."outbox" AS o INDEXED BY "outbox_message_id" ON o.message_id = e.value ->> '$.id';
