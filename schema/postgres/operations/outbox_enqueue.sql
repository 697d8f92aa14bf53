-- Inserts messages in the order of the list. The payloads come as one run of bytes, cut by offset and size,
-- so that no encoding stands between the caller's bytes and the row.
-- The due time is absolute or relative to the database's clock, which decides it.
-- A statement and no function: publishing one message would cost half as much again.
INSERT INTO "public"."outbox"
    (message_id, uuid, topic, payload, headers, correlation_id, stream_key, created_at, due_at, next_attempt_at)
SELECT m.id, m.uuid, m.topic, substring($2::bytea FROM m.at + 1 FOR m.size), coalesce(m.headers_text, m.headers::text), m.correlation_id, m.stream_key,
       statement_timestamp(), due.at, greatest(due.at, statement_timestamp())
FROM json_to_recordset($1::json) AS m(
         id uuid, uuid text, topic text, at int, size int, headers json, headers_text text, correlation_id text, stream_key text,
         due_ms bigint, delay_ms bigint)
CROSS JOIN LATERAL (
    SELECT coalesce(timestamptz 'epoch' + m.due_ms * interval '1 millisecond',
                    statement_timestamp() + m.delay_ms * interval '1 millisecond') AS at) AS due
