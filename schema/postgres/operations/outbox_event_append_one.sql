-- Appends one event, for the log alone and without an id of the caller's, to a stream that exists, like outbox_event_append but
-- from typed parameters and without a function, which costs half as much. Returns its version, or nothing if the stream's row was
-- not moved, for whatever reason. Only a function can pin a plan; without one, PostgreSQL seeks the name whatever its statistics
-- say, except in sessions that planned this for a page or two of streams, until the next vacuum or analyze of their table.
-- Parameters: stream, expected, message_id, uuid, topic, topic_key, payload, headers, correlation_id, stream_key, stream_id
WITH moved AS (
    UPDATE "public"."outbox_event_stream" AS s SET version = s.version + 1
    WHERE s.name = $1::text AND NOT s.archived
      AND CASE $2::bigint WHEN -2 THEN true WHEN -1 THEN s.version > s.hidden WHEN 0 THEN s.version = s.hidden
                          ELSE s.version = $2::bigint AND s.version > s.hidden END
    RETURNING s.stream_no, s.version),
added AS (
    INSERT INTO "public"."outbox" (message_id, uuid, topic, topic_key, payload, headers, correlation_id, stream_key, stream_id, created_at)
    SELECT $3::uuid, $4::text, $5::text, $6::bigint, $7::bytea, '{"outbox_event_version":"' || m.version || '",' || substr($8::text, 2),
           $9::text, $10::text, $11::bigint, clock_timestamp()
    FROM moved AS m
    RETURNING seq, octet_length(payload) + octet_length(headers) AS size),
numbered AS (
    INSERT INTO "public"."outbox_event" (stream_no, version, seq, size) SELECT m.stream_no, m.version, a.seq, a.size FROM moved AS m, added AS a),
pending AS (
    INSERT INTO "public"."outbox_log_pending" (seq, message_id, topic) SELECT a.seq, $3::uuid, $5::text FROM added AS a)
SELECT m.version FROM moved AS m
