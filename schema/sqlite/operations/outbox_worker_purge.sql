-- Deletes up to limit workers that have not lived for longer than the given age; returns how many. What they handled then names
-- no worker. The highest number stays, because another worker would get it.
DELETE FROM "main"."outbox_worker"
WHERE worker_id IN (
    SELECT w.worker_id FROM "main"."outbox_worker" AS w INDEXED BY "outbox_worker_lives"
    WHERE w.lives_until < CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) - (?1 ->> '$.older_than_ms')
      AND w.worker_id < (SELECT max(n.worker_id) FROM "main"."outbox_worker" AS n)
    ORDER BY w.lives_until
    LIMIT (?1 ->> '$.limit'));

SELECT changes();
