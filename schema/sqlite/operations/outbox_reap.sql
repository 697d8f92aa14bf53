-- Gives back up to limit messages whose lease has expired, which counts an attempt; answers how many. Each is due again
-- after a random time up to its wait, so that one that ends its process does not take the same others with it each time.
-- Ended messages hold no lease and are never touched. Nothing is inserted, as outbox_claim says.
SELECT EXISTS (SELECT 1 FROM "main"."outbox" AS o INDEXED BY "outbox_leased"
               WHERE o.status = 1 AND o.locked_until < CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER));

INSERT INTO "main"."outbox" (seq, message_id, uuid, topic, payload, created_at, next_attempt_at)
SELECT o.seq, '', '', '', x'', 0, CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) + (random() & 1048575)
       * (?1 ->> ('$.waits[' || min(o.retry_count, json_array_length(?1, '$.waits') - 1) || ']')) / 1048576
FROM "main"."outbox" AS o INDEXED BY "outbox_leased"
WHERE o.status = 1 AND o.locked_until < CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)
ORDER BY o.locked_until
LIMIT (?1 ->> '$.limit')
ON CONFLICT (seq) DO UPDATE
SET status = 0, owner_token = NULL, locked_until = NULL, retry_count = retry_count + 1, next_attempt_at = excluded.next_attempt_at,
    last_error = 'the lease expired: the worker stopped or did not renew it in time';

SELECT changes();
