-- Reads the log after a position, in order: up to limit positions and up to a number of bytes; a larger event comes alone.
-- Messages that are no events come without contents and with version 0, so that one call never looks at more than limit rows.
-- What is an event is said by its row: anybody may send a message with such headers.
WITH page AS MATERIALIZED (
    SELECT l.position, o.seq, e.stream_no, e.version, coalesce(e.size, 0) AS size
    FROM "main"."outbox_log" AS l
    CROSS JOIN "main"."outbox" AS o INDEXED BY "outbox_message_id" ON o.message_id = l.message_id
    LEFT JOIN "main"."outbox_event" AS e INDEXED BY "outbox_event_seq" ON e.seq = o.seq
    WHERE l.position > ?1 ->> '$.after' AND l.position <= ?1 ->> '$.to'
    ORDER BY l.position
    LIMIT (?1 ->> '$.limit')),
summed AS MATERIALIZED (
    SELECT p.*, sum(p.size) OVER (ORDER BY p.position ROWS UNBOUNDED PRECEDING) AS total FROM page AS p)
SELECT coalesce((SELECT t.name FROM "main"."outbox_event_stream" AS t WHERE t.stream_no = s.stream_no), ''), coalesce(s.version, 0), s.position,
       coalesce(o.message_id, ''), coalesce(o.uuid, ''), coalesce(o.topic, ''), coalesce(o.payload, x''), o.headers, o.correlation_id, coalesce(o.created_at, 0), 0
FROM summed AS s
LEFT JOIN "main"."outbox" AS o INDEXED BY "outbox_message_id"
       ON s.version IS NOT NULL AND o.message_id = (SELECT i.message_id FROM "main"."outbox" AS i WHERE i.seq = s.seq)
WHERE s.total <= ?1 ->> '$.bytes' OR s.total = s.size;
