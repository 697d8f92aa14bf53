-- How many messages are in each state; -1 is of contents without one.
SELECT COALESCE(s.Status, -1), COUNT_BIG(*) FROM {{.Outbox}} AS o LEFT JOIN {{.State}} AS s ON s.Seq = o.Seq GROUP BY s.Status;
