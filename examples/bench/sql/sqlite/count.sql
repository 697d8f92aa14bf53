-- How many messages are in each state; -1 is of contents without one.
SELECT coalesce(s.status, -1), count(*) FROM {{.Outbox}} o LEFT JOIN {{.State}} s ON s.seq = o.seq GROUP BY 1;
