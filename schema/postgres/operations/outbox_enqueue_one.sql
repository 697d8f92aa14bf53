-- Inserts one message like outbox_enqueue, from typed parameters: JSON would cost a sixth more.
-- Parameters: message_id, uuid, topic, topic_key, payload, headers, correlation_id, stream_key, due_ms, delay_ms
WITH added AS (
    INSERT INTO "public"."outbox" (message_id, uuid, topic, topic_key, payload, headers, correlation_id, stream_key, created_at, due_at)
    VALUES ($1::uuid, $2::text, $3::text, $4::bigint, $5::bytea, $6::text, $7::text, $8::text, statement_timestamp(),
            coalesce(timestamptz 'epoch' + $9::bigint * interval '1 millisecond',
                     statement_timestamp() + $10::bigint * interval '1 millisecond'))
    RETURNING seq, due_at)
INSERT INTO "public"."outbox_state" (seq, topic_key, next_attempt_at, size)
SELECT a.seq, $4::bigint, greatest(a.due_at, statement_timestamp()), octet_length($5::bytea) + coalesce(octet_length($6::text), 0) FROM added AS a
