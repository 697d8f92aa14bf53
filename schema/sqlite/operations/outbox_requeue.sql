-- Makes up to limit failed messages ready again with a fresh retry budget; answers how many, and until when they had
-- failed: the argument of the next call, so that many calls do not take again what has failed again meanwhile, not even
-- in the same millisecond. Both filters are optional: a topic, and a list of message ids.
UPDATE "main"."outbox" INDEXED BY "outbox_message_id"
SET status = 0, retry_count = 0, next_attempt_at = CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER),
    processed_at = NULL, processed_by = NULL
WHERE message_id IN (SELECT o.message_id FROM "main"."outbox" AS o INDEXED BY "outbox_ended"
                     WHERE o.status >= 2 AND o.status = 3
                       AND (?1 ->> '$.until' IS NULL OR o.processed_at < ?1 ->> '$.until'
                            OR o.processed_at = ?1 ->> '$.until' AND o.next_attempt_at < o.processed_at)
                       AND (?1 ->> '$.topic' IS NULL OR o.topic = ?1 ->> '$.topic')
                       AND (?1 -> '$.ids' IS NULL OR o.message_id IN (SELECT i.value FROM json_each(?1, '$.ids') AS i))
                     ORDER BY o.processed_at, o.seq
                     LIMIT (?1 ->> '$.limit'));

SELECT changes(), coalesce(?1 ->> '$.until', CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER));
