-- Appends events to a stream. One compare-and-set moves the stream's row to the version after the last event, before anything
-- is inserted: a conflict is a row that was not moved. expected: -2 any version, -1 any but none, 0 none, or the version
-- itself. Returns one row, with kind 1 and the last version; kind 2 and the stream's version if that is another; kind 3 if the
-- stream is archived. If the caller has named the events and some of them are there, nothing is written and they are returned,
-- too, with kind 4: a repeated call does not conflict with itself. The version goes into the headers here, because only here
-- is it known.
INSERT INTO "main"."outbox_event_stream" (name, version)
SELECT ?1 ->> '$.stream', ?1 ->> '$.count'
WHERE (?1 ->> '$.expected' IN (-2, 0) OR EXISTS (SELECT 1 FROM "main"."outbox_event_stream" AS s INDEXED BY "outbox_event_stream_name" WHERE s.name = ?1 ->> '$.stream'))
  AND NOT (?1 ->> '$.named' AND EXISTS (
      SELECT 1 FROM json_each(?1, '$.events') AS e CROSS JOIN "main"."outbox" AS o INDEXED BY "outbox_message_id" ON o.message_id = e.value ->> '$.id'))
ON CONFLICT (name) DO UPDATE SET version = version + excluded.version
WHERE NOT archived
  AND CASE ?1 ->> '$.expected' WHEN -2 THEN 1 WHEN -1 THEN version > hidden WHEN 0 THEN version = hidden
                               ELSE version = ?1 ->> '$.expected' AND version > hidden END;

SELECT CASE WHEN changes() > 0 THEN 1 WHEN s.archived THEN 3 ELSE 2 END,
       CASE WHEN s.version > s.hidden THEN s.version ELSE 0 END, '', '', '', '', x''
FROM (SELECT 1)
LEFT JOIN "main"."outbox_event_stream" AS s INDEXED BY "outbox_event_stream_name" ON s.name = ?1 ->> '$.stream'
UNION ALL
SELECT 4, coalesce(v.version, 0), o.message_id,
       coalesce((SELECT s.name FROM "main"."outbox_event_stream" AS s WHERE s.stream_no = v.stream_no), ''), o.topic, coalesce(o.headers, ''), o.payload
FROM json_each(?1, '$.events') AS e
CROSS JOIN "main"."outbox" AS o INDEXED BY "outbox_message_id" ON o.message_id = e.value ->> '$.id'
LEFT JOIN "main"."outbox_event" AS v INDEXED BY "outbox_event_seq" ON v.seq = o.seq
WHERE ?1 ->> '$.named' AND changes() = 0;

SELECT EXISTS (SELECT 1 WHERE changes() > 0);

INSERT INTO "main"."outbox"
    (message_id, uuid, topic, topic_key, payload, headers, correlation_id, stream_key, stream_id, created_at, due_at)
SELECT m.id, m.uuid, m.topic, m.topic_key, m.payload, m.headers, m.correlation_id, m.stream_key, m.stream_id, m.moment, m.due
FROM (SELECT e.key AS n, e.value ->> '$.id' AS id, e.value ->> '$.uuid' AS uuid, e.value ->> '$.topic' AS topic,
             e.value ->> '$.topic_key' AS topic_key, coalesce(substr(?2, (e.value ->> '$.at') + 1, e.value ->> '$.size'), x'') AS payload,
             '{"outbox_event_version":"' || (c.first + e.key) || '",' || substr(coalesce(e.value ->> '$.headers_text', e.value -> '$.headers'), 2) AS headers,
             e.value ->> '$.correlation_id' AS correlation_id,
             e.value ->> '$.stream_key' AS stream_key, e.value ->> '$.stream_id' AS stream_id,
             coalesce(e.value ->> '$.due_ms', c.moment + (e.value ->> '$.delay_ms')) AS due, c.moment
      FROM (SELECT CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) AS moment,
                   (SELECT s.version FROM "main"."outbox_event_stream" AS s INDEXED BY "outbox_event_stream_name" WHERE s.name = ?1 ->> '$.stream') - (?1 ->> '$.count') + 1 AS first) AS c
      CROSS JOIN json_each(?1, '$.events') AS e) AS m
ORDER BY m.n;

INSERT INTO "main"."outbox_event" (stream_no, version, seq, size)
SELECT s.stream_no, s.version - (?1 ->> '$.count') + 1 + e.key, o.seq, length(o.payload) + octet_length(o.headers)
FROM "main"."outbox_event_stream" AS s INDEXED BY "outbox_event_stream_name"
CROSS JOIN json_each(?1, '$.events') AS e
CROSS JOIN "main"."outbox" AS o INDEXED BY "outbox_message_id" ON o.message_id = e.value ->> '$.id'
WHERE s.name = ?1 ->> '$.stream';

INSERT INTO "main"."outbox_log_pending" (seq, message_id, topic)
SELECT o.seq, o.message_id, o.topic
FROM json_each(?1, '$.events') AS e CROSS JOIN "main"."outbox" AS o INDEXED BY "outbox_message_id" ON o.message_id = e.value ->> '$.id';

SELECT EXISTS (SELECT 1 WHERE ?1 ->> '$.queued');

INSERT INTO "main"."outbox_state" (seq, topic_key, stream_id, next_attempt_at, size, flags, stages, status)
SELECT o.seq, o.topic_key, o.stream_id, max(coalesce(o.due_at, 0), o.created_at), length(o.payload) + octet_length(o.headers), 2, 2,
       CASE WHEN o.stream_id IS NULL THEN 0 ELSE 5 END
FROM json_each(?1, '$.events') AS e CROSS JOIN "main"."outbox" AS o INDEXED BY "outbox_message_id" ON o.message_id = e.value ->> '$.id';

INSERT INTO "main"."outbox_queue" (stream_id, seq)
SELECT o.stream_id, o.seq
FROM json_each(?1, '$.events') AS e CROSS JOIN "main"."outbox" AS o INDEXED BY "outbox_message_id" ON o.message_id = e.value ->> '$.id'
WHERE o.stream_id IS NOT NULL;

INSERT INTO "main"."outbox_stream" (stream_id, topic_key, next_attempt_at)
SELECT o.stream_id, o.topic_key, max(coalesce(o.due_at, 0), o.created_at)
FROM json_each(?1, '$.events') AS e CROSS JOIN "main"."outbox" AS o INDEXED BY "outbox_message_id" ON o.message_id = e.value ->> '$.id'
WHERE o.stream_id IS NOT NULL
ORDER BY o.seq
ON CONFLICT (stream_id) DO NOTHING;
