-- Reads messages of a topic, or of all topics if it is '', after a position and in order: up to limit messages and up to a
-- number of bytes; a larger message comes alone. The age counts from when the message was given its position. If the log
-- ends before the position, or has a different message there than the reader has read, the database is older than the
-- reader: the result is one row without a message, with the last position given. It is one statement, so that it takes no
-- lock; only one half of page looks at anything.
WITH went AS MATERIALIZED (
    SELECT c.position AS last FROM "main"."outbox_log_counter" AS c
    WHERE c.id = 1 AND (c.position < ?1 ->> '$.after' OR (?1 ->> '$.message' <> '' AND EXISTS (
        SELECT 1 FROM "main"."outbox_log" AS l WHERE l.position = ?1 ->> '$.after' AND l.message_id <> ?1 ->> '$.message')))),
page AS MATERIALIZED (
    SELECT * FROM (
        SELECT l.position, l.logged_at, o.message_id, length(o.payload) + coalesce(octet_length(o.headers), 0) AS size
        FROM "main"."outbox_log" AS l CROSS JOIN "main"."outbox" AS o INDEXED BY "outbox_message_id" ON o.message_id = l.message_id
        WHERE ?1 ->> '$.topic' <> '' AND l.topic = ?1 ->> '$.topic' AND l.position > ?1 ->> '$.after' AND NOT EXISTS (SELECT 1 FROM went)
        ORDER BY l.position
        LIMIT (?1 ->> '$.limit'))
    UNION ALL
    SELECT * FROM (
        SELECT l.position, l.logged_at, o.message_id, length(o.payload) + coalesce(octet_length(o.headers), 0) AS size
        FROM "main"."outbox_log" AS l CROSS JOIN "main"."outbox" AS o INDEXED BY "outbox_message_id" ON o.message_id = l.message_id
        WHERE ?1 ->> '$.topic' = '' AND l.position > ?1 ->> '$.after' AND NOT EXISTS (SELECT 1 FROM went)
        ORDER BY l.position
        LIMIT (?1 ->> '$.limit'))),
summed AS MATERIALIZED (
    SELECT p.position, p.logged_at, p.message_id, p.size, sum(p.size) OVER (ORDER BY p.position ROWS UNBOUNDED PRECEDING) AS total FROM page AS p)
SELECT w.last, '', '', '', x'', NULL, NULL, NULL, 0, NULL, 0, 0, 0 FROM went AS w
UNION ALL
SELECT s.position, o.message_id, o.uuid, o.topic, o.payload, o.headers, o.correlation_id, o.stream_key, o.created_at, o.due_at, 0,
       s.logged_at, CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) - s.logged_at
FROM summed AS s CROSS JOIN "main"."outbox" AS o INDEXED BY "outbox_message_id" ON o.message_id = s.message_id
WHERE s.total <= ?1 ->> '$.bytes' OR s.total = s.size;
