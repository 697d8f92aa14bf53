-- Inserts messages in the order of the list, contents and states. The payloads come as one run of bytes, cut by offset and
-- size, so that the caller's bytes are stored without any encoding. The due time is absolute or relative, by the database's
-- clock. The trigger "outbox_queued_insert" makes it one statement, which needs no transaction around it.
INSERT INTO "main"."outbox_queued"
    (message_id, uuid, topic, topic_key, payload, headers, correlation_id, stream_key, created_at, due_at)
SELECT m.id, m.uuid, m.topic, m.topic_key, m.payload, m.headers, m.correlation_id, m.stream_key, m.moment, m.due
FROM (SELECT e.key AS n, e.value ->> '$.id' AS id, e.value ->> '$.uuid' AS uuid, e.value ->> '$.topic' AS topic,
             e.value ->> '$.topic_key' AS topic_key, coalesce(substr(?2, (e.value ->> '$.at') + 1, e.value ->> '$.size'), x'') AS payload,
             coalesce(e.value ->> '$.headers_text', e.value -> '$.headers') AS headers, e.value ->> '$.correlation_id' AS correlation_id,
             e.value ->> '$.stream_key' AS stream_key,
             coalesce(e.value ->> '$.due_ms', c.moment + (e.value ->> '$.delay_ms')) AS due, c.moment
      FROM json_each(?1) AS e,
           (SELECT CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) AS moment) AS c) AS m
ORDER BY m.n;
