-- How many messages are in each state.
SELECT Status, COUNT_BIG(*) FROM {{.State}} GROUP BY Status;
