-- Makes ready messages due at another time: at due_ms, or delay_ms from now; returns how many. The rows of streams are moved
-- too, which the head's time decides. The upsert inserts no state: see outbox_claim.
INSERT INTO "main"."outbox_state" (seq, topic_key, next_attempt_at)
SELECT n.seq, 0, coalesce(?1 ->> '$.due_ms', CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) + (?1 ->> '$.delay_ms'))
FROM (SELECT (SELECT o.seq FROM "main"."outbox" AS o WHERE o.message_id = i.value) AS seq FROM json_each(?1, '$.ids') AS i) AS n
WHERE (SELECT s.status IN (0, 5) FROM "main"."outbox_state" AS s WHERE s.seq = n.seq)
ON CONFLICT (seq) DO UPDATE SET next_attempt_at = excluded.next_attempt_at;

SELECT changes();

INSERT INTO "main"."outbox_free" (stream_id)
SELECT DISTINCT (SELECT o.stream_id FROM "main"."outbox" AS o WHERE o.message_id = i.value) FROM json_each(?1, '$.ids') AS i;
