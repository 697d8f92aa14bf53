-- The most recent dead letters, of one topic or of all.
SELECT o.seq, o.message_id, o.uuid, o.topic, o.payload, o.headers, o.correlation_id, o.stream_key,
       o.created_at, o.due_at, d.retry_count, d.status, d.next_attempt_at, NULL, d.owner_token,
       (SELECT a.error FROM "main"."outbox_attempt" AS a WHERE a.seq = o.seq AND a.error IS NOT NULL ORDER BY a.attempt_id DESC LIMIT 1),
       d.processed_at, (SELECT w.name FROM "main"."outbox_worker" AS w WHERE w.worker_id = d.worker_id), d.stages
FROM (SELECT s.* FROM "main"."outbox_state" AS s INDEXED BY "outbox_dead"
      WHERE s.status = 3 AND (?1 ->> '$.topic_key' IS NULL OR s.topic_key = ?1 ->> '$.topic_key')
      ORDER BY s.processed_at DESC, s.seq DESC
      LIMIT (?1 ->> '$.limit')) AS d
CROSS JOIN "main"."outbox" AS o INDEXED BY "outbox_message_id"
        ON o.message_id = (SELECT c.message_id FROM "main"."outbox" AS c WHERE c.seq = d.seq)
WHERE ?1 ->> '$.topic' IS NULL OR o.topic = ?1 ->> '$.topic';
