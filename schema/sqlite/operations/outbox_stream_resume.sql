-- Resumes a blocked stream: its failed messages get all their attempts back, or with skip the first is skipped and stays
-- failed. Returns the number of messages: none if the stream is not blocked. The upserts insert no state: see outbox_claim.
INSERT INTO "main"."outbox_state" (seq, topic_key, next_attempt_at)
SELECT q.seq, 0, CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)
FROM "main"."outbox_queue" AS q
WHERE q.stream_id = ?1 ->> '$.stream_id'
  AND q.seq <= (SELECT t.run_last FROM "main"."outbox_stream" AS t WHERE t.stream_id = ?1 ->> '$.stream_id' AND t.status = 2)
  AND (SELECT s.status = 3 AND NOT s.flags & 4 FROM "main"."outbox_state" AS s WHERE s.seq = q.seq)
ORDER BY q.seq
LIMIT (SELECT CASE WHEN ?1 ->> '$.skip' THEN 1 ELSE -1 END)
ON CONFLICT (seq) DO UPDATE
SET flags = CASE WHEN ?1 ->> '$.skip' THEN flags | 4 ELSE flags END,
    status = CASE WHEN ?1 ->> '$.skip' THEN 3 ELSE 5 END,
    retry_count = CASE WHEN ?1 ->> '$.skip' THEN retry_count ELSE 0 END,
    next_attempt_at = CASE WHEN ?1 ->> '$.skip' THEN next_attempt_at ELSE excluded.next_attempt_at END,
    processed_at = CASE WHEN ?1 ->> '$.skip' THEN processed_at END,
    worker_id = CASE WHEN ?1 ->> '$.skip' THEN worker_id END;

SELECT changes();

INSERT INTO "main"."outbox_free" (stream_id) SELECT ?1 ->> '$.stream_id' WHERE changes() > 0;
