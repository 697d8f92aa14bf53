-- Reads the events of a stream from a version on, forwards or backwards: up to limit events and up to a number of bytes; a
-- larger event comes alone. Each row has the version at which the stream ends in that direction, so that the reader needs no
-- further call to know. Of an archived stream, unless that is asked for, it returns one row with version -1. It is one
-- statement, so that it takes no lock; only one half of page looks at anything.
WITH wanted AS MATERIALIZED (
    SELECT s.stream_no, s.version, s.hidden, s.archived AND NOT ?1 ->> '$.archived' AS closed FROM "main"."outbox_event_stream" AS s INDEXED BY "outbox_event_stream_name"
    WHERE s.name = ?1 ->> '$.stream'),
page AS MATERIALIZED (
    SELECT * FROM (
        SELECT e.version, e.seq, w.version AS last, e.version AS place, e.size
        FROM wanted AS w CROSS JOIN "main"."outbox_event" AS e ON e.stream_no = w.stream_no
        WHERE NOT ?1 ->> '$.backwards' AND NOT w.closed AND e.version >= ?1 ->> '$.from' AND e.version > w.hidden
        ORDER BY e.version
        LIMIT (?1 ->> '$.limit'))
    UNION ALL
    SELECT * FROM (
        SELECT e.version, e.seq, w.hidden + 1 AS last, -e.version AS place, e.size
        FROM wanted AS w CROSS JOIN "main"."outbox_event" AS e ON e.stream_no = w.stream_no
        WHERE ?1 ->> '$.backwards' AND NOT w.closed AND e.version <= ?1 ->> '$.from' AND e.version > w.hidden
        ORDER BY e.version DESC
        LIMIT (?1 ->> '$.limit'))),
summed AS MATERIALIZED (
    SELECT p.version, p.seq, p.last, p.size, sum(p.size) OVER (ORDER BY p.place ROWS UNBOUNDED PRECEDING) AS total FROM page AS p)
SELECT ?1 ->> '$.stream', -1, 0, '', '', '', x'', NULL, NULL, 0, w.version FROM wanted AS w WHERE w.closed
UNION ALL
SELECT ?1 ->> '$.stream', s.version, 0, o.message_id, o.uuid, o.topic, o.payload, o.headers, o.correlation_id, o.created_at, s.last
FROM summed AS s
CROSS JOIN "main"."outbox" AS o INDEXED BY "outbox_message_id" ON o.message_id = (SELECT i.message_id FROM "main"."outbox" AS i WHERE i.seq = s.seq)
WHERE s.total <= ?1 ->> '$.bytes' OR s.total = s.size;
