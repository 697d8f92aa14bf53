-- Bare draining: ?2 messages of a topic, by its key, with payload.
WITH picked AS MATERIALIZED (
    SELECT seq FROM {{.State}}
    WHERE status = 0 AND topic_key = ?1 AND next_attempt_at <= CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)
    ORDER BY next_attempt_at, seq
    LIMIT ?2)
UPDATE {{.State}} SET status = 1, owner_token = '00000000-0000-4000-8000-000000000001'
WHERE seq IN (SELECT seq FROM picked)
RETURNING seq, (SELECT o.uuid FROM {{.Outbox}} AS o WHERE o.seq = {{.State}}.seq), (SELECT o.payload FROM {{.Outbox}} AS o WHERE o.seq = {{.State}}.seq);
