-- How many joins are in each state, and how many steps of them have ended.
SELECT Status, COUNT_BIG(*), SUM(CompletedSteps) FROM {{.Join}} GROUP BY Status;
