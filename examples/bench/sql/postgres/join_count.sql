-- How many joins are in each state, and how many steps of them have ended.
SELECT status, count(*), sum(completed_steps) FROM {{.Join}} GROUP BY status;
