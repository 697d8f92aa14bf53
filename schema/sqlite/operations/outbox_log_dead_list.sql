-- Lists what consumer groups have given up, in order of the log: of one group and topic or of all, after a position; only
-- what is to be delivered again where requeued says so.
SELECT d.position, o.message_id, o.uuid, o.topic, o.payload, o.headers, o.correlation_id, o.stream_key, o.created_at, o.due_at, o.retry_count,
       d.group_name, d.attempts, d.reason, d.failed_at, d.requeued
FROM (SELECT k.* FROM "main"."outbox_log_dead" AS k
      WHERE (?1 ->> '$.group' IS NULL OR k.group_name = ?1 ->> '$.group')
        AND (?1 ->> '$.topic' IS NULL OR k.topic = ?1 ->> '$.topic')
        AND k.position > ?1 ->> '$.after'
        AND (NOT ?1 ->> '$.requeued' OR k.requeued)
      ORDER BY k.position
      LIMIT (?1 ->> '$.limit')) AS d
CROSS JOIN "main"."outbox" AS o ON o.message_id = d.message_id;
