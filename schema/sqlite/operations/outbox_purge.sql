-- Deletes up to limit messages that ended (2 done, 3 failed) longer ago than the given age; answers how many.
-- Small batches: the one writer is free again at once.
DELETE FROM "main"."outbox"
WHERE seq IN (SELECT o.seq FROM "main"."outbox" AS o
              WHERE o.status >= 2 AND o.status = ?1 ->> '$.status'
                AND o.processed_at < CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) - (?1 ->> '$.older_than_ms')
              ORDER BY o.processed_at
              LIMIT (?1 ->> '$.limit'));

SELECT changes();
