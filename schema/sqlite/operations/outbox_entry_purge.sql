-- Deletes up to limit entries that ended (2 done, 3 failed) and were last seen longer ago than the given age, with their
-- messages in the queue (by a trigger), the oldest first; returns for each when it was last seen. The latest of these is the
-- after of the next call, which begins there. Those still needed (outbox_kept) are kept, and those last seen longer than
-- within_ms ago, if it is given.
DELETE FROM "main"."outbox_entry" INDEXED BY "outbox_entry_key"
WHERE (handler, source, message_id) IN (
    SELECT e.handler, e.source, e.message_id
    FROM "main"."outbox_entry" AS e INDEXED BY "outbox_entry_last_seen"
    LEFT JOIN "main"."outbox" AS o INDEXED BY "outbox_message_id" ON o.message_id = e.queue_id
    WHERE e.last_seen_at >= max(coalesce(CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) - (?1 ->> '$.within_ms'), 0),
                                coalesce(?1 ->> '$.after', 0))
      AND e.last_seen_at <= CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) - (?1 ->> '$.older_than_ms')
      AND coalesce((SELECT s.status FROM "main"."outbox_state" AS s WHERE s.seq = o.seq), 2) = ?1 ->> '$.status'
      AND coalesce((SELECT s.processed_at FROM "main"."outbox_state" AS s WHERE s.seq = o.seq), 0)
          <= CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) - (?1 ->> '$.older_than_ms')
      AND NOT EXISTS (SELECT 1 FROM "main"."outbox_kept" AS k WHERE k.message_id = o.message_id)
    ORDER BY e.last_seen_at
    LIMIT (?1 ->> '$.limit'))
RETURNING last_seen_at;
