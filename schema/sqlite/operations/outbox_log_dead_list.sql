-- Lists dead letters of consumer groups in log order: of one group and topic or of all, after a position. A reader asks
-- constantly for the requeued ones of its group and topic, which looks at nothing else.
SELECT d.position, o.message_id, o.uuid, o.topic, o.payload, o.headers, o.correlation_id, o.stream_key, o.created_at, o.due_at, 0,
       d.group_name, d.attempts, d.reason, d.failed_at, d.requeued
FROM (SELECT * FROM (
          SELECT k.* FROM "main"."outbox_log_dead" AS k
          WHERE ?1 ->> '$.requeued' AND k.requeued AND k.group_name = ?1 ->> '$.group' AND k.topic = ?1 ->> '$.topic'
            AND k.position > ?1 ->> '$.after'
          ORDER BY k.position
          LIMIT (?1 ->> '$.limit'))
      UNION ALL
      SELECT * FROM (
          SELECT k.* FROM "main"."outbox_log_dead" AS k
          WHERE NOT ?1 ->> '$.requeued'
            AND (?1 ->> '$.group' IS NULL OR k.group_name = ?1 ->> '$.group')
            AND (?1 ->> '$.topic' IS NULL OR k.topic = ?1 ->> '$.topic')
            AND k.position > ?1 ->> '$.after'
          ORDER BY k.position
          LIMIT (?1 ->> '$.limit'))) AS d
CROSS JOIN "main"."outbox" AS o INDEXED BY "outbox_message_id" ON o.message_id = d.message_id;
