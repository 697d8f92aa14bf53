-- How many messages are in each state.
SELECT Status, COUNT_BIG(*) FROM {{.Outbox}} GROUP BY Status;
