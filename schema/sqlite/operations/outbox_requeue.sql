-- Makes up to limit failed messages ready again with all their attempts; returns how many, until when they had failed, and
-- when the last of them had. Both are arguments of the next call, unless the messages have ids, so that a series of calls does
-- not requeue a message that has failed again since, not even in the same millisecond, and does not look at the same ones
-- again. Both filters are optional: a topic, and a list of message ids. Stages stay, unless
-- start_over is set. A trigger puts messages of streams back in their places. The upserts insert no state: see outbox_claim.
INSERT INTO "main"."outbox_requeued" (seq)
SELECT * FROM (
    SELECT s.seq
    FROM "main"."outbox_state" AS s INDEXED BY "outbox_dead"
    WHERE ?1 -> '$.ids' IS NULL AND s.status = 3 AND s.processed_at >= coalesce(?1 ->> '$.after', 0)
      AND s.processed_at <= coalesce(?1 ->> '$.until', 9223372036854775807)
      AND (?1 ->> '$.until' IS NULL OR s.processed_at < ?1 ->> '$.until' OR s.next_attempt_at < s.processed_at)
      AND (?1 ->> '$.topic_key' IS NULL OR s.topic_key = ?1 ->> '$.topic_key')
    ORDER BY s.processed_at, s.seq
    LIMIT (?1 ->> '$.limit'))
UNION ALL
SELECT * FROM (
    SELECT DISTINCT s.seq
    FROM json_each(?1, '$.ids') AS i
    CROSS JOIN "main"."outbox" AS o ON o.message_id = i.value
    CROSS JOIN "main"."outbox_state" AS s ON s.seq = o.seq
    WHERE +s.status = 3
      AND s.processed_at <= coalesce(?1 ->> '$.until', 9223372036854775807)
      AND (?1 ->> '$.until' IS NULL OR s.processed_at < ?1 ->> '$.until' OR s.next_attempt_at < s.processed_at)
      AND (?1 ->> '$.topic_key' IS NULL OR s.topic_key = ?1 ->> '$.topic_key')
    LIMIT (?1 ->> '$.limit'));

SELECT count(*), coalesce(?1 ->> '$.until', CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)), coalesce(max(s.processed_at), 0)
FROM "main"."outbox_requeued" AS k CROSS JOIN "main"."outbox_state" AS s ON s.seq = k.seq;

INSERT INTO "main"."outbox_state" (seq, topic_key, next_attempt_at)
SELECT k.seq, 0, CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) FROM "main"."outbox_requeued" AS k WHERE true
ON CONFLICT (seq) DO UPDATE
SET status = CASE WHEN stream_id IS NULL THEN 0 ELSE 5 END, flags = flags & ~4, retry_count = 0,
    next_attempt_at = excluded.next_attempt_at, processed_at = NULL, worker_id = NULL,
    stages = CASE WHEN ?1 ->> '$.start_over' THEN NULL ELSE stages END;

DELETE FROM "main"."outbox_requeued";
