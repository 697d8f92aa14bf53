-- How all workflows have ended.
SELECT name, outcome FROM {workflows}
