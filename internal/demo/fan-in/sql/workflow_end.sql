-- How a workflow has ended.
UPDATE {workflows} SET outcome = $1 WHERE name = $2
