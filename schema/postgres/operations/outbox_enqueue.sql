-- Inserts messages in the order of the arrays, contents and states. A column is an array: JSON would cost a fifth more. The
-- payloads come as one run of bytes, cut by offset and size, so that no encoding stands between the caller's bytes and the row.
-- The due time is absolute or relative to the database's clock, which decides it.
-- A statement and no function: publishing one message would cost half as much again.
-- Parameters: message_id, uuid, topic, topic_key, payloads, offset, size, headers, correlation_id, stream_key, due_ms, delay_ms
WITH added AS (
    INSERT INTO "public"."outbox" (message_id, uuid, topic, topic_key, payload, headers, correlation_id, stream_key, created_at, due_at)
    SELECT m.id, m.uuid, m.topic, m.topic_key, substring($5::bytea FROM m.at + 1 FOR m.size), m.headers, m.correlation_id, m.stream_key,
           statement_timestamp(),
           coalesce(timestamptz 'epoch' + m.due_ms * interval '1 millisecond',
                    statement_timestamp() + m.delay_ms * interval '1 millisecond')
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bigint[], $6::int[], $7::int[], $8::text[], $9::text[], $10::text[], $11::bigint[],
                $12::bigint[]) AS m(id, uuid, topic, topic_key, at, size, headers, correlation_id, stream_key, due_ms, delay_ms)
    RETURNING seq, topic_key, due_at, octet_length(payload) + coalesce(octet_length(headers), 0) AS size)
INSERT INTO "public"."outbox_state" (seq, topic_key, next_attempt_at, size)
SELECT a.seq, a.topic_key, greatest(a.due_at, statement_timestamp()), a.size FROM added AS a
