-- How often a message had an outcome.
SELECT COUNT(*) FROM {handled} WHERE name = $1 AND outcome = $2
