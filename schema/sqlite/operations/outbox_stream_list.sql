-- Lists blocked streams, of one topic or of all, with the message that blocks each, since when and why, and how many
-- messages wait behind it, counted up to counted.
SELECT o.topic, o.stream_key, o.message_id, (SELECT s.processed_at FROM "main"."outbox_state" AS s WHERE s.seq = o.seq),
       (SELECT a.error FROM "main"."outbox_attempt" AS a WHERE a.seq = o.seq AND a.error IS NOT NULL ORDER BY a.attempt_id DESC LIMIT 1),
       (SELECT count(*) FROM (SELECT 1 FROM "main"."outbox_queue" AS q WHERE q.stream_id = b.stream_id AND q.seq <> o.seq LIMIT (?1 ->> '$.counted')))
FROM (SELECT t.stream_id,
             (SELECT q.seq FROM "main"."outbox_queue" AS q
              WHERE q.stream_id = t.stream_id
                AND (SELECT s.status = 3 AND NOT s.flags & 4 FROM "main"."outbox_state" AS s WHERE s.seq = q.seq)
              ORDER BY q.seq LIMIT 1) AS seq
      FROM "main"."outbox_stream" AS t INDEXED BY "outbox_stream_blocked"
      WHERE t.status = 2 AND (?1 ->> '$.topic_key' IS NULL OR t.topic_key = ?1 ->> '$.topic_key')
      ORDER BY t.topic_key, t.stream_id
      LIMIT (?1 ->> '$.limit')) AS b
CROSS JOIN "main"."outbox" AS o INDEXED BY "outbox_message_id"
        ON o.message_id = (SELECT c.message_id FROM "main"."outbox" AS c WHERE c.seq = b.seq)
WHERE ?1 ->> '$.topic' IS NULL OR o.topic = ?1 ->> '$.topic';
