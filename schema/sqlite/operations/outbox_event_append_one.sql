-- Appends one event, for the log alone and without an id of the caller's, to a stream that exists, like outbox_event_append but
-- from typed parameters. Returns its version, or nothing if the stream's row was not moved, for whatever reason.
-- Parameters: stream, expected, message_id, uuid, topic, topic_key, payload, headers, correlation_id, stream_key, stream_id
UPDATE "main"."outbox_event_stream" INDEXED BY "outbox_event_stream_name" SET version = version + 1
WHERE name = ?1 AND NOT archived
  AND CASE ?2 WHEN -2 THEN 1 WHEN -1 THEN version > hidden WHEN 0 THEN version = hidden ELSE version = ?2 AND version > hidden END;

SELECT EXISTS (SELECT 1 WHERE changes() > 0);

INSERT INTO "main"."outbox"
    (message_id, uuid, topic, topic_key, payload, headers, correlation_id, stream_key, stream_id, created_at)
SELECT ?3, ?4, ?5, ?6, coalesce(?7, x''), '{"outbox_event_version":"' || s.version || '",' || substr(?8, 2), ?9, ?10, ?11,
       CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)
FROM "main"."outbox_event_stream" AS s INDEXED BY "outbox_event_stream_name" WHERE s.name = ?1;

INSERT INTO "main"."outbox_log_pending" (seq, message_id, topic) VALUES (last_insert_rowid(), ?3, ?5);

INSERT INTO "main"."outbox_event" (stream_no, version, seq, size)
SELECT s.stream_no, s.version, o.seq, length(o.payload) + octet_length(o.headers)
FROM "main"."outbox_event_stream" AS s INDEXED BY "outbox_event_stream_name"
CROSS JOIN "main"."outbox" AS o INDEXED BY "outbox_message_id" ON o.message_id = ?3
WHERE s.name = ?1;

SELECT s.version FROM "main"."outbox_event_stream" AS s INDEXED BY "outbox_event_stream_name" WHERE s.name = ?1;
