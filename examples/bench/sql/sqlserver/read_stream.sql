-- Bare reading of a stream: all of it.
SELECT e.Version, CAST(o.MessageId AS CHAR(36)), o.Topic, o.Payload, o.Headers
FROM {{.EventStream}} AS s
INNER JOIN {{.Event}} AS e ON e.StreamNo = s.StreamNo
INNER JOIN {{.Outbox}} AS o ON o.Seq = e.Seq
WHERE s.Name = @p1
ORDER BY e.Version;
