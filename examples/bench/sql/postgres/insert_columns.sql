-- Bare publishing: many messages, one array a column.
WITH added AS (
    INSERT INTO {{.Outbox}} (message_id, uuid, topic, payload, topic_key)
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bytea[], $5::bigint[])
    RETURNING seq, topic_key)
INSERT INTO {{.State}} (seq, topic_key, next_attempt_at) SELECT seq, topic_key, now() FROM added;
