-- Inserts messages like outbox_enqueue, with stream keys: those are inserted as arrivals, and a router puts them into the
-- queues of their streams. A separate statement, so that messages without a stream cost no more.
WITH added AS (
    INSERT INTO "public"."outbox" (message_id, uuid, topic, topic_key, payload, headers, correlation_id, stream_key, stream_id, created_at, due_at)
    SELECT m.id, m.uuid, m.topic, m.topic_key, substring($2::bytea FROM m.at + 1 FOR m.size), coalesce(m.headers_text, m.headers::text), m.correlation_id,
           m.stream_key, m.stream_id, statement_timestamp(),
           coalesce(timestamptz 'epoch' + m.due_ms * interval '1 millisecond',
                    statement_timestamp() + m.delay_ms * interval '1 millisecond')
    FROM json_to_recordset($1::json) AS m(
             id uuid, uuid text, topic text, topic_key bigint, at int, size int, headers json, headers_text text, correlation_id text, stream_key text,
             stream_id bigint, due_ms bigint, delay_ms bigint)
    RETURNING seq, topic_key, stream_id, due_at, octet_length(payload) + coalesce(octet_length(headers), 0) AS size),
arrived AS (
    INSERT INTO "public"."outbox_arrival" (seq, stream_id, topic_key)
    SELECT a.seq, a.stream_id, a.topic_key FROM added AS a WHERE a.stream_id IS NOT NULL)
INSERT INTO "public"."outbox_state" (seq, topic_key, stream_id, next_attempt_at, size, status)
SELECT a.seq, a.topic_key, a.stream_id, greatest(a.due_at, statement_timestamp()), a.size, CASE WHEN a.stream_id IS NULL THEN 0 ELSE 5 END
FROM added AS a
