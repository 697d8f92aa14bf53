-- What happened to one message beside its state: its attempts, its place in the log and in its stream, and the consumer groups
-- that gave it up. Each row is an event of a kind, with a time, a number, a status, a name and a text, as far as it has them.
WITH wanted AS MATERIALIZED (
    SELECT o.seq, o.stream_id, o.message_id, (SELECT l.position FROM "main"."outbox_log" AS l INDEXED BY "outbox_log_message" WHERE l.message_id = o.message_id) AS position
    FROM "main"."outbox" AS o INDEXED BY "outbox_message_id" WHERE o.message_id = ?1 ->> '$.id')
SELECT * FROM (
    SELECT 'attempt' AS kind, a.happened_at, a.attempt, a.outcome, (SELECT w.name FROM "main"."outbox_worker" AS w WHERE w.worker_id = a.worker_id), a.error
    FROM wanted AS m CROSS JOIN "main"."outbox_attempt" AS a ON a.seq = m.seq
    ORDER BY a.attempt_id DESC
    LIMIT (?1 ->> '$.limit'))
UNION ALL
SELECT 'unlogged', NULL, NULL, NULL, p.topic, NULL
FROM wanted AS m CROSS JOIN "main"."outbox_log_pending" AS p INDEXED BY "outbox_log_pending_message" ON p.message_id = m.message_id
UNION ALL
SELECT 'logged', l.logged_at, l.position, NULL, l.topic, NULL
FROM wanted AS m CROSS JOIN "main"."outbox_log" AS l ON l.position = m.position
UNION ALL
SELECT * FROM (
    SELECT 'given up', d.failed_at, d.position, d.attempts, d.group_name, d.reason
    FROM wanted AS m CROSS JOIN "main"."outbox_log_dead" AS d INDEXED BY "outbox_log_dead_position" ON d.position = m.position
    LIMIT (?1 ->> '$.limit'))
UNION ALL
SELECT 'stream', NULL, (SELECT count(*) FROM (SELECT 1 FROM "main"."outbox_queue" AS q WHERE q.stream_id = m.stream_id AND q.seq < m.seq LIMIT 10000)),
       (SELECT t.status FROM "main"."outbox_stream" AS t WHERE t.stream_id = m.stream_id), NULL, NULL
FROM wanted AS m
WHERE EXISTS (SELECT 1 FROM "main"."outbox_queue" AS q WHERE q.stream_id = m.stream_id AND q.seq = m.seq);
