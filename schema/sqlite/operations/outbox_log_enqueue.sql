-- Inserts messages like outbox_enqueue, and into the log: they get a position once they are committed. With log_only they
-- are for the log alone and have no state.
INSERT INTO "main"."outbox"
    (message_id, uuid, topic, topic_key, payload, headers, correlation_id, stream_key, stream_id, created_at, due_at)
SELECT m.id, m.uuid, m.topic, m.topic_key, m.payload, m.headers, m.correlation_id, m.stream_key, m.stream_id, m.moment, m.due
FROM (SELECT e.key AS n, e.value ->> '$.id' AS id, e.value ->> '$.uuid' AS uuid, e.value ->> '$.topic' AS topic,
             e.value ->> '$.topic_key' AS topic_key, coalesce(substr(?2, (e.value ->> '$.at') + 1, e.value ->> '$.size'), x'') AS payload,
             coalesce(e.value ->> '$.headers_text', e.value -> '$.headers') AS headers, e.value ->> '$.correlation_id' AS correlation_id,
             e.value ->> '$.stream_key' AS stream_key, e.value ->> '$.stream_id' AS stream_id,
             coalesce(e.value ->> '$.due_ms', c.moment + (e.value ->> '$.delay_ms')) AS due, c.moment
      FROM json_each(?1) AS e,
           (SELECT CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) AS moment) AS c) AS m
ORDER BY m.n;

INSERT INTO "main"."outbox_log_pending" (seq, message_id, topic)
SELECT o.seq, o.message_id, o.topic
FROM json_each(?1) AS e CROSS JOIN "main"."outbox" AS o INDEXED BY "outbox_message_id" ON o.message_id = e.value ->> '$.id';

INSERT INTO "main"."outbox_state" (seq, topic_key, stream_id, next_attempt_at, size, flags, status)
SELECT o.seq, o.topic_key, o.stream_id, max(coalesce(o.due_at, 0), o.created_at), length(o.payload) + coalesce(octet_length(o.headers), 0), 2,
       CASE WHEN o.stream_id IS NULL THEN 0 ELSE 5 END
FROM json_each(?1) AS e CROSS JOIN "main"."outbox" AS o INDEXED BY "outbox_message_id" ON o.message_id = e.value ->> '$.id'
WHERE NOT coalesce(e.value ->> '$.log_only', 0);

INSERT INTO "main"."outbox_queue" (stream_id, seq)
SELECT o.stream_id, o.seq
FROM json_each(?1) AS e CROSS JOIN "main"."outbox" AS o INDEXED BY "outbox_message_id" ON o.message_id = e.value ->> '$.id'
WHERE o.stream_id IS NOT NULL AND NOT coalesce(e.value ->> '$.log_only', 0);

INSERT INTO "main"."outbox_stream" (stream_id, topic_key, next_attempt_at)
SELECT o.stream_id, o.topic_key, max(coalesce(o.due_at, 0), o.created_at)
FROM json_each(?1) AS e CROSS JOIN "main"."outbox" AS o INDEXED BY "outbox_message_id" ON o.message_id = e.value ->> '$.id'
WHERE o.stream_id IS NOT NULL AND NOT coalesce(e.value ->> '$.log_only', 0)
ORDER BY o.seq
ON CONFLICT (stream_id) DO NOTHING;
