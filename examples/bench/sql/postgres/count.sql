-- How many messages are in each state.
SELECT status, count(*) FROM {{.Outbox}} GROUP BY status;
