-- How many messages are in each state.
SELECT status, count(*) FROM {{.State}} GROUP BY status;
