-- Walks the dead letters in the order in which they failed, at most scan of them after a mark, and returns those that match, without
-- payloads. So a search costs the same in each call, however few match. The last row, without a message id, says where the
-- walk ended, how many it passed (in retry_count), and until when they had failed, which is an argument of the next call, so
-- that a walk ends although messages go on failing; processed_at is that in microseconds.
WITH given AS MATERIALIZED (
    SELECT min(coalesce(?1 ->> '$.until', 9223372036854775807), coalesce((?1 ->> '$.to_us') / 1000, 9223372036854775807),
               CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)) AS until,
           coalesce((?1 ->> '$.from_us') / 1000, 0) AS since),
walked AS MATERIALIZED (
    SELECT * FROM (
        SELECT s.seq, s.processed_at FROM given AS g CROSS JOIN "main"."outbox_state" AS s INDEXED BY "outbox_dead"
        WHERE NOT ?1 ->> '$.newest' AND s.status = 3 AND s.processed_at >= g.since AND s.processed_at <= g.until
          AND (s.processed_at, s.seq) > (coalesce(?1 ->> '$.mark', 0), coalesce(?1 ->> '$.mark_seq', 0))
        ORDER BY s.processed_at, s.seq
        LIMIT (?1 ->> '$.scan'))
    UNION ALL
    SELECT * FROM (
        SELECT s.seq, s.processed_at FROM given AS g CROSS JOIN "main"."outbox_state" AS s INDEXED BY "outbox_dead"
        WHERE ?1 ->> '$.newest' AND s.status = 3 AND s.processed_at >= g.since AND s.processed_at <= g.until
          AND (s.processed_at, s.seq) < (coalesce(?1 ->> '$.mark', 9223372036854775807), coalesce(?1 ->> '$.mark_seq', 0))
        ORDER BY s.processed_at DESC, s.seq DESC
        LIMIT (?1 ->> '$.scan'))),
found AS (
    SELECT k.seq, k.processed_at,
           (SELECT a.error FROM "main"."outbox_attempt" AS a WHERE a.seq = k.seq AND a.error IS NOT NULL ORDER BY a.attempt_id DESC LIMIT 1) AS error
    FROM walked AS k)
SELECT o.seq, o.message_id, o.uuid, o.topic, o.correlation_id, o.stream_key, o.created_at,
       (SELECT s.next_attempt_at FROM "main"."outbox_state" AS s WHERE s.seq = f.seq) AS next_attempt_at, f.processed_at, 3,
       (SELECT s.retry_count FROM "main"."outbox_state" AS s WHERE s.seq = f.seq), (SELECT s.size FROM "main"."outbox_state" AS s WHERE s.seq = f.seq),
       (SELECT w.name FROM "main"."outbox_worker" AS w
        WHERE w.worker_id = (SELECT s.worker_id FROM "main"."outbox_state" AS s WHERE s.seq = f.seq)),
       substr(f.error, 1, ?1 ->> '$.cut'), f.processed_at, (SELECT g.until FROM given AS g)
FROM found AS f
CROSS JOIN "main"."outbox" AS o INDEXED BY "outbox_message_id"
        ON o.message_id = (SELECT c.message_id FROM "main"."outbox" AS c WHERE c.seq = f.seq)
WHERE (?1 ->> '$.topic' IS NULL OR o.topic = ?1 ->> '$.topic')
  AND (?1 ->> '$.uuid' IS NULL OR o.uuid = ?1 ->> '$.uuid')
  AND (?1 ->> '$.correlation_id' IS NULL OR o.correlation_id = ?1 ->> '$.correlation_id')
  AND (?1 ->> '$.stream_key' IS NULL OR o.stream_key = ?1 ->> '$.stream_key')
  AND (?1 ->> '$.error' IS NULL OR instr(f.error, ?1 ->> '$.error') > 0)
UNION ALL
SELECT coalesce(e.seq, 0), NULL, NULL, NULL, NULL, NULL, NULL, NULL, g.until * 1000, NULL, (SELECT count(*) FROM walked), NULL, NULL, NULL,
       coalesce(e.processed_at, 0), g.until
FROM given AS g
LEFT JOIN (SELECT k.seq, k.processed_at FROM walked AS k
           ORDER BY CASE WHEN ?1 ->> '$.newest' THEN k.processed_at ELSE -k.processed_at END,
                    CASE WHEN ?1 ->> '$.newest' THEN k.seq ELSE -k.seq END
           LIMIT 1) AS e ON 1;
