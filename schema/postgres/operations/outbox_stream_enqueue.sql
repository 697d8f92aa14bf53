-- Inserts messages like outbox_enqueue, with stream keys: those are inserted as arrivals, and a router puts them into the
-- queues of their streams. A separate statement, so that messages without a stream cost no more.
-- Parameters: payloads, and for each message, as texts of arrays: message_id, uuid, topic, topic_key, at, size, headers,
-- correlation_id, stream_key, due_ms, delay_ms, stream_id
WITH added AS (
    INSERT INTO "public"."outbox" (message_id, uuid, topic, topic_key, payload, headers, correlation_id, stream_key, stream_id, created_at, due_at)
    SELECT m.id, m.uuid, coalesce(m.topic, (SELECT ($4::text::text[])[1])), coalesce(m.topic_key, (SELECT ($5::text::bigint[])[1])),
           substring($1::bytea FROM m.at + 1 FOR m.size), m.headers, m.correlation_id, m.stream_key, m.stream_id, statement_timestamp(),
           coalesce(timestamptz 'epoch' + m.due_ms * interval '1 millisecond',
                    statement_timestamp() + m.delay_ms * interval '1 millisecond')
    FROM (SELECT unnest($2::text::uuid[]) AS id, unnest($3::text::text[]) AS uuid, unnest($4::text::text[]) AS topic, unnest($5::text::bigint[]) AS topic_key,
                 unnest($6::text::int[]) AS at, unnest($7::text::int[]) AS size, unnest($8::text::text[]) AS headers, unnest($9::text::text[]) AS correlation_id,
                 unnest($10::text::text[]) AS stream_key, unnest($11::text::bigint[]) AS due_ms, unnest($12::text::bigint[]) AS delay_ms,
                 unnest($13::text::bigint[]) AS stream_id) AS m
    RETURNING seq, topic_key, stream_id, due_at, octet_length(payload) + coalesce(octet_length(headers), 0) AS size),
arrived AS (
    INSERT INTO "public"."outbox_arrival" (seq, stream_id, topic_key, lane)
    SELECT a.seq, a.stream_id, a.topic_key, a.stream_id & 3 FROM added AS a WHERE a.stream_id IS NOT NULL)
INSERT INTO "public"."outbox_state" (seq, topic_key, stream_id, next_attempt_at, size, status, ready)
SELECT a.seq, a.topic_key, a.stream_id, greatest(a.due_at, statement_timestamp()), a.size, CASE WHEN a.stream_id IS NULL THEN 0 ELSE 5 END, a.stream_id IS NULL
FROM added AS a
