-- Lists the topics with due messages, with their number (counted up to limit) and the oldest due time, and those with dead
-- letters, with their number among the newest (limit of them). A topic may come twice. It jumps from topic to topic in the
-- index of what is due, so that the cost depends on topics and not on messages.
WITH RECURSIVE topics(topic_key) AS (
    SELECT (SELECT s.topic_key FROM "main"."outbox_state" AS s INDEXED BY "outbox_ready" WHERE s.status = 0 ORDER BY s.topic_key LIMIT 1)
    UNION ALL
    SELECT (SELECT s.topic_key FROM "main"."outbox_state" AS s INDEXED BY "outbox_ready"
            WHERE s.status = 0 AND s.topic_key > t.topic_key ORDER BY s.topic_key LIMIT 1)
    FROM topics AS t WHERE t.topic_key IS NOT NULL)
SELECT (SELECT o.topic FROM "main"."outbox" AS o WHERE o.seq = due.seq), due.waiting, due.oldest,
       CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) - due.oldest, 0
FROM (SELECT (SELECT count(*) FROM (SELECT 1 FROM "main"."outbox_state" AS s INDEXED BY "outbox_ready"
                                    WHERE s.status = 0 AND s.topic_key = t.topic_key
                                      AND s.next_attempt_at <= CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)
                                    LIMIT (?1 ->> '$.limit'))) AS waiting,
             (SELECT s.next_attempt_at FROM "main"."outbox_state" AS s INDEXED BY "outbox_ready"
              WHERE s.status = 0 AND s.topic_key = t.topic_key ORDER BY s.next_attempt_at LIMIT 1) AS oldest,
             (SELECT s.seq FROM "main"."outbox_state" AS s INDEXED BY "outbox_ready"
              WHERE s.status = 0 AND s.topic_key = t.topic_key ORDER BY s.next_attempt_at LIMIT 1) AS seq
      FROM topics AS t WHERE t.topic_key IS NOT NULL) AS due
WHERE due.waiting > 0
UNION ALL
SELECT (SELECT o.topic FROM "main"."outbox" AS o WHERE o.seq = dead.seq), 0, CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER), 0, dead.failed
FROM (SELECT max(d.seq) AS seq, count(*) AS failed
      FROM (SELECT s.topic_key, s.seq FROM "main"."outbox_state" AS s INDEXED BY "outbox_dead"
            WHERE s.status = 3 ORDER BY s.processed_at DESC, s.seq DESC LIMIT (?1 ->> '$.limit')) AS d
      GROUP BY d.topic_key) AS dead;
