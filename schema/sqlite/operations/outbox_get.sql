-- The whole state of messages by message id, for people and tools; unknown ids are left out, and so are those deleted on
-- acknowledgement. A message without a state that is in the log is for the log alone (status 4). States are looked up by
-- subqueries: see outbox_settle.
SELECT m.seq, m.message_id, m.uuid, m.topic, m.payload, m.headers, m.correlation_id, m.stream_key, m.created_at, m.due_at,
       coalesce((SELECT s.retry_count FROM "main"."outbox_state" AS s WHERE s.seq = m.seq), 0), CASE m.status WHEN 5 THEN 0 ELSE coalesce(m.status, 4) END,
       coalesce((SELECT s.next_attempt_at FROM "main"."outbox_state" AS s WHERE s.seq = m.seq), m.created_at),
       (SELECT l.locked_until FROM "main"."outbox_lease" AS l WHERE l.owner_token = m.owner_token), m.owner_token,
       (SELECT a.error FROM "main"."outbox_attempt" AS a WHERE a.seq = m.seq AND a.error IS NOT NULL ORDER BY a.attempt_id DESC LIMIT 1),
       CASE WHEN m.status IS NULL THEN m.created_at ELSE (SELECT s.processed_at FROM "main"."outbox_state" AS s WHERE s.seq = m.seq) END,
       CASE WHEN m.status IS NULL THEN 'log'
            ELSE (SELECT w.name FROM "main"."outbox_worker" AS w
                  WHERE w.worker_id = (SELECT s.worker_id FROM "main"."outbox_state" AS s WHERE s.seq = m.seq)) END,
       (SELECT s.stages FROM "main"."outbox_state" AS s WHERE s.seq = m.seq)
FROM (SELECT o.*, (SELECT s.status FROM "main"."outbox_state" AS s WHERE s.seq = o.seq) AS status,
             (SELECT s.owner_token FROM "main"."outbox_state" AS s WHERE s.seq = o.seq) AS owner_token
      FROM "main"."outbox" AS o INDEXED BY "outbox_message_id"
      WHERE o.message_id IN (SELECT i.value FROM json_each(?1, '$.ids') AS i)) AS m
WHERE m.status IS NOT NULL
   OR EXISTS (SELECT 1 FROM "main"."outbox_log" AS l INDEXED BY "outbox_log_message" WHERE l.message_id = m.message_id)
   OR EXISTS (SELECT 1 FROM "main"."outbox_log_pending" AS p INDEXED BY "outbox_log_pending_message" WHERE p.message_id = m.message_id);
