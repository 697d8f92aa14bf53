-- Inserts messages in the order of the list, contents and states. The payloads come as one run of bytes, cut by offset and
-- size, so that the caller's bytes are stored without any encoding. The due time is absolute or relative, by the database's
-- clock. A statement instead of a function, with which publishing one message would cost half as much again. Arrays, because
-- JSON would cost a fifth more; as texts, because drivers would translate them; and unnest in the select list, because in FROM
-- the server would store each of them once more.
-- Parameters: payloads, and for each message, as texts of arrays: message_id, uuid, topic, topic_key, at, size, headers,
-- correlation_id, stream_key, due_ms, delay_ms. A topic and its key are NULL if they are those of the first message.
WITH added AS (
    INSERT INTO "public"."outbox" (message_id, uuid, topic, topic_key, payload, headers, correlation_id, stream_key, created_at, due_at)
    SELECT m.id, m.uuid, coalesce(m.topic, (SELECT ($4::text::text[])[1])), coalesce(m.topic_key, (SELECT ($5::text::bigint[])[1])),
           substring($1::bytea FROM m.at + 1 FOR m.size), m.headers, m.correlation_id, m.stream_key, statement_timestamp(),
           coalesce(timestamptz 'epoch' + m.due_ms * interval '1 millisecond',
                    statement_timestamp() + m.delay_ms * interval '1 millisecond')
    FROM (SELECT unnest($2::text::uuid[]) AS id, unnest($3::text::text[]) AS uuid, unnest($4::text::text[]) AS topic, unnest($5::text::bigint[]) AS topic_key,
                 unnest($6::text::int[]) AS at, unnest($7::text::int[]) AS size, unnest($8::text::text[]) AS headers, unnest($9::text::text[]) AS correlation_id,
                 unnest($10::text::text[]) AS stream_key, unnest($11::text::bigint[]) AS due_ms, unnest($12::text::bigint[]) AS delay_ms) AS m
    RETURNING seq, topic_key, due_at, octet_length(payload) + coalesce(octet_length(headers), 0) AS size)
INSERT INTO "public"."outbox_state" (seq, topic_key, next_attempt_at, size)
SELECT a.seq, a.topic_key, greatest(a.due_at, statement_timestamp()), a.size FROM added AS a
