-- Walks messages of any state from the newest to the oldest, at most scan of them before a mark, and returns those that match,
-- without payloads. So a search costs the same in each call, however few match. The last row, without a message id, says
-- where the walk ended (seq), how many it passed (in retry_count), and when the last of them was published (mark).
WITH walked AS MATERIALIZED (
    SELECT o.seq, o.created_at FROM "main"."outbox" AS o
    WHERE o.seq < coalesce(?1 ->> '$.mark_seq', 9223372036854775807)
    ORDER BY o.seq DESC
    LIMIT (?1 ->> '$.scan')),
found AS (
    SELECT k.seq,
           (SELECT CASE s.status WHEN 5 THEN 0 ELSE s.status END FROM "main"."outbox_state" AS s WHERE s.seq = k.seq) AS status,
           (SELECT a.error FROM "main"."outbox_attempt" AS a WHERE a.seq = k.seq AND a.error IS NOT NULL ORDER BY a.attempt_id DESC LIMIT 1) AS error
    FROM walked AS k)
SELECT o.seq, o.message_id, o.uuid, o.topic, o.correlation_id, o.stream_key, o.created_at,
       (SELECT s.next_attempt_at FROM "main"."outbox_state" AS s WHERE s.seq = f.seq), (SELECT s.processed_at FROM "main"."outbox_state" AS s WHERE s.seq = f.seq),
       coalesce(f.status, 4), coalesce((SELECT s.retry_count FROM "main"."outbox_state" AS s WHERE s.seq = f.seq), 0),
       coalesce((SELECT s.size FROM "main"."outbox_state" AS s WHERE s.seq = f.seq), 0),
       (SELECT w.name FROM "main"."outbox_worker" AS w
        WHERE w.worker_id = (SELECT s.worker_id FROM "main"."outbox_state" AS s WHERE s.seq = f.seq)),
       substr(f.error, 1, ?1 ->> '$.cut'), NULL, NULL
FROM found AS f
CROSS JOIN "main"."outbox" AS o INDEXED BY "outbox_message_id"
        ON o.message_id = (SELECT c.message_id FROM "main"."outbox" AS c WHERE c.seq = f.seq)
WHERE (?1 ->> '$.topic' IS NULL OR o.topic = ?1 ->> '$.topic')
  AND (?1 ->> '$.uuid' IS NULL OR o.uuid = ?1 ->> '$.uuid')
  AND (?1 ->> '$.correlation_id' IS NULL OR o.correlation_id = ?1 ->> '$.correlation_id')
  AND (?1 ->> '$.stream_key' IS NULL OR o.stream_key = ?1 ->> '$.stream_key')
  AND (?1 -> '$.states' IS NULL OR coalesce(f.status, 4) IN (SELECT i.value FROM json_each(?1, '$.states') AS i))
  AND (?1 ->> '$.from_us' IS NULL OR o.created_at >= (?1 ->> '$.from_us') / 1000)
  AND (?1 ->> '$.to_us' IS NULL OR o.created_at <= (?1 ->> '$.to_us') / 1000)
  AND (?1 ->> '$.error' IS NULL OR instr(f.error, ?1 ->> '$.error') > 0)
  AND (f.status IS NOT NULL
       OR EXISTS (SELECT 1 FROM "main"."outbox_log" AS l INDEXED BY "outbox_log_message" WHERE l.message_id = o.message_id)
       OR EXISTS (SELECT 1 FROM "main"."outbox_log_pending" AS p INDEXED BY "outbox_log_pending_message" WHERE p.message_id = o.message_id))
UNION ALL
SELECT coalesce(e.last, 0), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, e.passed, NULL, NULL, NULL,
       coalesce((SELECT c.created_at FROM "main"."outbox" AS c WHERE c.seq = e.last), 0) * 1000, 0
FROM (SELECT min(k.seq) AS last, count(*) AS passed FROM walked AS k) AS e;
