-- Deletes up to limit messages that ended (2 done, 3 failed) longer ago than the given age; answers how many.
-- Those that are still needed (outbox_kept) are spared. Small batches: the one writer is free again at once.
DELETE FROM "main"."outbox" INDEXED BY "outbox_message_id"
WHERE message_id IN (SELECT o.message_id FROM "main"."outbox" AS o INDEXED BY "outbox_ended"
                     WHERE o.status >= 2 AND o.status = ?1 ->> '$.status'
                       AND o.processed_at <= CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) - (?1 ->> '$.older_than_ms')
                       AND NOT EXISTS (SELECT 1 FROM "main"."outbox_kept" AS k WHERE k.message_id = o.message_id)
                     ORDER BY o.processed_at
                     LIMIT (?1 ->> '$.limit'));

SELECT changes();
