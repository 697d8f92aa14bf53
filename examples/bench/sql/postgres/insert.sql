-- Bare publishing: one message.
WITH added AS (
    INSERT INTO {{.Outbox}} (message_id, uuid, topic, payload, topic_key) VALUES ($1, $2, $3, $4, $5)
    RETURNING seq, topic_key)
INSERT INTO {{.State}} (seq, topic_key, next_attempt_at) SELECT seq, topic_key, now() FROM added;
