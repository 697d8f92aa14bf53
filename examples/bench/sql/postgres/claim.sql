-- Bare draining: $2 messages of a topic, with payload. The pick is materialized because it might run twice otherwise.
WITH picked AS MATERIALIZED (
    SELECT seq FROM {{.Outbox}}
    WHERE status = 0 AND topic = $1 AND next_attempt_at <= now()
    ORDER BY next_attempt_at, seq
    LIMIT $2
    FOR UPDATE SKIP LOCKED)
UPDATE {{.Outbox}} AS o
SET status = 1, owner_token = '00000000-0000-4000-8000-000000000001', locked_until = now() + interval '30 seconds'
FROM picked WHERE o.seq = picked.seq
RETURNING o.seq, o.uuid, o.payload;
