-- Deletes up to limit messages that are no longer needed, with their states and attempts (by a trigger), and returns how
-- many, and where to continue: the after of the next call, or 0 at the end. In small batches, so that the single writer is
-- soon free. With seqs: those of the list whose states were deleted on acknowledgement. With ids: those of the list that
-- had failed until then. With status 3: those that failed longer ago than the given age, but not longer than within_ms if
-- that is given, the oldest first; after is when the last of them had failed, and the end is where there are none. Otherwise
-- those done before that, or deleted on acknowledgement, in order of publishing, up to the first that was published later
-- than that. Messages that joins or the log need (outbox_kept), or that are in the queue of their stream, are kept.
DELETE FROM "main"."outbox" INDEXED BY "outbox_message_id"
WHERE message_id IN (
    SELECT (SELECT o.message_id FROM "main"."outbox" AS o WHERE o.seq = d.seq)
    FROM (SELECT s.seq FROM "main"."outbox_state" AS s INDEXED BY "outbox_dead"
          WHERE ?1 -> '$.seqs' IS NULL AND ?1 -> '$.ids' IS NULL AND ?1 ->> '$.status' = 3 AND s.status = 3
            AND s.processed_at >= max(coalesce(CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) - (?1 ->> '$.within_ms'), 0),
                                      coalesce(?1 ->> '$.after', 0))
            AND s.processed_at <= CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) - (?1 ->> '$.older_than_ms')
            AND NOT EXISTS (SELECT 1 FROM "main"."outbox_queue" AS q WHERE q.stream_id = s.stream_id AND q.seq = s.seq)
            AND NOT EXISTS (SELECT 1 FROM "main"."outbox_kept" AS k
                            WHERE k.message_id = (SELECT o.message_id FROM "main"."outbox" AS o WHERE o.seq = s.seq))
          ORDER BY s.processed_at
          LIMIT (?1 ->> '$.limit')) AS d)
RETURNING 1, (SELECT s.processed_at FROM "main"."outbox_state" AS s WHERE s.seq = "outbox".seq);

WITH looked AS MATERIALIZED (
    SELECT n.seq, (SELECT o.created_at FROM "main"."outbox" AS o WHERE o.seq = n.seq) <= c.before AS old, c.before
    FROM (SELECT CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) - (?1 ->> '$.older_than_ms') AS before) AS c
    CROSS JOIN (SELECT * FROM (SELECT s.seq FROM "main"."outbox_state" AS s INDEXED BY "outbox_done"
                               WHERE ?1 -> '$.seqs' IS NULL AND ?1 ->> '$.status' = 2
                                 AND s.status = 2 AND s.seq > coalesce(?1 ->> '$.after', 0)
                               ORDER BY s.seq
                               LIMIT (?1 ->> '$.limit'))
                UNION ALL
                SELECT * FROM (SELECT a.seq FROM "main"."outbox_acked" AS a
                               WHERE ?1 -> '$.seqs' IS NULL AND ?1 ->> '$.status' = 2 AND a.seq > coalesce(?1 ->> '$.after', 0)
                               ORDER BY a.seq
                               LIMIT (?1 ->> '$.limit'))
                ORDER BY 1
                LIMIT (?1 ->> '$.limit')) AS n),
chosen AS MATERIALIZED (
    SELECT l.seq FROM looked AS l
    WHERE l.seq < coalesce((SELECT min(y.seq) FROM looked AS y WHERE NOT y.old), 9223372036854775807)
      AND coalesce((SELECT s.processed_at <= l.before AND NOT EXISTS (SELECT 1 FROM "main"."outbox_queue" AS q WHERE q.stream_id = s.stream_id AND q.seq = s.seq)
                    FROM "main"."outbox_state" AS s WHERE s.seq = l.seq), 1)
    UNION ALL
    SELECT f.seq
    FROM (SELECT (SELECT o.seq FROM "main"."outbox" AS o WHERE o.message_id = i.value) AS seq FROM json_each(?1, '$.ids') AS i) AS f
    WHERE (SELECT s.status = 3 AND s.processed_at <= ?1 ->> '$.until'
                  AND NOT EXISTS (SELECT 1 FROM "main"."outbox_queue" AS q WHERE q.stream_id = s.stream_id AND q.seq = s.seq)
           FROM "main"."outbox_state" AS s WHERE s.seq = f.seq)
    UNION ALL
    SELECT i.value FROM json_each(?1, '$.seqs') AS i
    WHERE NOT EXISTS (SELECT 1 FROM "main"."outbox_state" AS s WHERE s.seq = i.value))
DELETE FROM "main"."outbox" INDEXED BY "outbox_message_id"
WHERE message_id IN (SELECT (SELECT o.message_id FROM "main"."outbox" AS o WHERE o.seq = c.seq) FROM chosen AS c)
  AND NOT EXISTS (SELECT 1 FROM "main"."outbox_kept" AS k WHERE k.message_id = "outbox".message_id);

-- The remaining ones are the first from there: as many as were not deleted.
WITH rest AS MATERIALIZED (
    SELECT n.seq, (SELECT o.created_at FROM "main"."outbox" AS o WHERE o.seq = n.seq)
                  <= CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) - (?1 ->> '$.older_than_ms') AS old
    FROM (SELECT * FROM (SELECT s.seq FROM "main"."outbox_state" AS s INDEXED BY "outbox_done"
                         WHERE ?1 -> '$.seqs' IS NULL AND ?1 ->> '$.status' = 2
                           AND s.status = 2 AND s.seq > coalesce(?1 ->> '$.after', 0)
                         ORDER BY s.seq
                         LIMIT (?1 ->> '$.limit'))
          UNION ALL
          SELECT * FROM (SELECT a.seq FROM "main"."outbox_acked" AS a
                         WHERE ?1 -> '$.seqs' IS NULL AND ?1 ->> '$.status' = 2 AND a.seq > coalesce(?1 ->> '$.after', 0)
                         ORDER BY a.seq
                         LIMIT (?1 ->> '$.limit'))
          ORDER BY 1
          LIMIT ((?1 ->> '$.limit') - changes())) AS n)
SELECT changes(),
       CASE WHEN ?1 -> '$.seqs' IS NULL AND ?1 ->> '$.status' = 2 AND r.n = (?1 ->> '$.limit') - changes() AND r.old
            THEN coalesce(r.last, max(coalesce(?1 ->> '$.after', 0), 1)) ELSE 0 END
FROM (SELECT count(*) AS n, coalesce(min(rest.old), 1) AS old, max(rest.seq) AS last FROM rest) AS r;
