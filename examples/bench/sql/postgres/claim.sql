-- Bare draining: $2 messages of a topic, by its key, with payload. The pick is materialized because it might run twice otherwise.
WITH picked AS MATERIALIZED (
    SELECT seq FROM {{.State}}
    WHERE ready AND topic_key = $1 AND next_attempt_at <= now()
    ORDER BY next_attempt_at, seq
    LIMIT $2
    FOR UPDATE SKIP LOCKED),
claimed AS (
    UPDATE {{.State}} AS s
    SET status = 1, ready = false, owner_token = '00000000-0000-4000-8000-000000000001'
    FROM picked WHERE s.seq = picked.seq
    RETURNING s.seq)
SELECT o.seq, o.uuid, o.payload FROM claimed AS c INNER JOIN {{.Outbox}} AS o ON o.seq = c.seq;
