-- The topics that have due messages waiting, with their number (counted up to limit) and the oldest due time.
-- Jumps from topic to topic in the index, so that it costs by topics and not by messages.
WITH RECURSIVE topics(topic) AS (
    SELECT (SELECT o.topic FROM "main"."outbox" AS o INDEXED BY "outbox_ready" WHERE o.status = 0 ORDER BY o.topic LIMIT 1)
    UNION ALL
    SELECT (SELECT o.topic FROM "main"."outbox" AS o INDEXED BY "outbox_ready" WHERE o.status = 0 AND o.topic > t.topic ORDER BY o.topic LIMIT 1)
    FROM topics AS t WHERE t.topic IS NOT NULL)
SELECT due.topic, due.waiting, due.oldest, CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) - due.oldest
FROM (SELECT t.topic,
             (SELECT count(*) FROM (SELECT 1 FROM "main"."outbox" AS o INDEXED BY "outbox_ready"
                                    WHERE o.status = 0 AND o.topic = t.topic
                                      AND o.next_attempt_at <= CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)
                                    LIMIT (?1 ->> '$.limit'))) AS waiting,
             (SELECT o.next_attempt_at FROM "main"."outbox" AS o INDEXED BY "outbox_ready"
              WHERE o.status = 0 AND o.topic = t.topic ORDER BY o.next_attempt_at LIMIT 1) AS oldest
      FROM topics AS t WHERE t.topic IS NOT NULL) AS due
WHERE due.waiting > 0;
