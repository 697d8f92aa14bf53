-- The outbox for people: contents and states in one, states by name, payloads and times as text.
CREATE VIEW IF NOT EXISTS "main"."outbox_view" AS
SELECT o.seq, o.message_id, o.uuid, o.topic, o.correlation_id, o.stream_key,
       CASE s.status WHEN 0 THEN 'ready' WHEN 5 THEN 'ready' WHEN 1 THEN 'in progress' WHEN 2 THEN 'done' WHEN 3 THEN 'failed' ELSE 'not queued' END AS state,
       s.status, coalesce(s.status = 2, 0) AS is_processed, s.retry_count,
       (SELECT a.error FROM "outbox_attempt" AS a WHERE a.seq = o.seq AND a.error IS NOT NULL ORDER BY a.attempt_id DESC LIMIT 1) AS last_error,
       o.headers, CAST(o.payload AS TEXT) AS payload_text,
       datetime(o.created_at / 1000.0, 'unixepoch', 'subsec') AS created_at,
       datetime(o.due_at / 1000.0, 'unixepoch', 'subsec') AS due_at,
       datetime(s.next_attempt_at / 1000.0, 'unixepoch', 'subsec') AS next_attempt_at,
       datetime(l.locked_until / 1000.0, 'unixepoch', 'subsec') AS locked_until, s.owner_token,
       datetime(s.processed_at / 1000.0, 'unixepoch', 'subsec') AS processed_at, w.name AS processed_by,
       (SELECT group_concat(b.column2, ', ' ORDER BY b.column1)
        FROM (VALUES (1, 'Stored'), (2, 'EventStored'), (4, 'Published'), (8, 'ReceptorProcessed'), (16, 'PerspectiveProcessed'),
                     (256, 'own 0'), (512, 'own 1'), (1024, 'own 2'), (2048, 'own 3'), (4096, 'own 4'), (8192, 'own 5'), (16384, 'own 6'),
                     (32768, 'own 7'), (65536, 'own 8'), (131072, 'own 9'), (262144, 'own 10'), (524288, 'own 11'), (1048576, 'own 12'),
                     (2097152, 'own 13'), (4194304, 'own 14'), (8388608, 'own 15')) AS b
        WHERE (coalesce(s.stages, 0) | 1) & b.column1) AS stages
FROM "outbox" AS o
LEFT JOIN "outbox_state" AS s ON s.seq = o.seq
LEFT JOIN "outbox_lease" AS l ON l.owner_token = s.owner_token
LEFT JOIN "outbox_worker" AS w ON w.worker_id = s.worker_id;
