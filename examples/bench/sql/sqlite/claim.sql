-- Bare draining: ?2 messages of a topic, by its key, with payload. RETURNING has no name for its row, hence the other one for seq.
WITH picked AS MATERIALIZED (
    SELECT seq FROM {{.State}}
    WHERE status = 0 AND topic_key = ?1 AND next_attempt_at <= CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)
    ORDER BY next_attempt_at, seq
    LIMIT ?2)
UPDATE {{.State}} SET status = 1, owner_token = '00000000-0000-4000-8000-000000000001'
WHERE seq IN (SELECT seq FROM picked)
RETURNING seq, (SELECT o.uuid FROM (SELECT seq AS n, uuid FROM {{.Outbox}}) AS o WHERE o.n = seq),
          (SELECT o.payload FROM (SELECT seq AS n, payload FROM {{.Outbox}}) AS o WHERE o.n = seq);
