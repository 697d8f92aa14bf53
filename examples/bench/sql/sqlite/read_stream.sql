-- Bare reading of a stream: all of it.
SELECT e.version, o.message_id, o.topic, o.payload, o.headers
FROM {{.EventStream}} AS s
INNER JOIN {{.Event}} AS e ON e.stream_no = s.stream_no
INNER JOIN {{.Outbox}} AS o ON o.seq = e.seq
WHERE s.name = ?1
ORDER BY e.version;
