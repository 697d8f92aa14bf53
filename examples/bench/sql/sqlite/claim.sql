-- Bare draining: ?2 messages of a topic, with payload.
UPDATE {{.Outbox}}
SET status = 1, owner_token = '00000000-0000-4000-8000-000000000001',
    locked_until = CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) + 30000
WHERE seq IN (
    SELECT seq FROM {{.Outbox}}
    WHERE status = 0 AND topic = ?1 AND next_attempt_at <= CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)
    ORDER BY next_attempt_at, seq
    LIMIT ?2)
RETURNING seq, uuid, payload;
