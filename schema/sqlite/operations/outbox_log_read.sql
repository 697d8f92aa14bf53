-- Reads up to limit messages of a topic after a position, in order; where the topic is '', of all topics. The age is since
-- the message got its position. It is one statement, so that it takes no lock; only one of its halves looks at anything.
SELECT * FROM (
    SELECT l.position, o.message_id, o.uuid, o.topic, o.payload, o.headers, o.correlation_id, o.stream_key, o.created_at, o.due_at, o.retry_count,
           l.logged_at, CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) - l.logged_at
    FROM "main"."outbox_log" AS l INNER JOIN "main"."outbox" AS o ON o.message_id = l.message_id
    WHERE ?1 ->> '$.topic' <> '' AND l.topic = ?1 ->> '$.topic' AND l.position > ?1 ->> '$.after'
    ORDER BY l.position
    LIMIT (?1 ->> '$.limit'))
UNION ALL
SELECT * FROM (
    SELECT l.position, o.message_id, o.uuid, o.topic, o.payload, o.headers, o.correlation_id, o.stream_key, o.created_at, o.due_at, o.retry_count,
           l.logged_at, CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) - l.logged_at
    FROM "main"."outbox_log" AS l CROSS JOIN "main"."outbox" AS o ON o.message_id = l.message_id
    WHERE ?1 ->> '$.topic' = '' AND l.position > ?1 ->> '$.after'
    ORDER BY l.position
    LIMIT (?1 ->> '$.limit'));
