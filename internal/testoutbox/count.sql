-- How many messages have a status.
SELECT COUNT(*) FROM {all} WHERE {status} = %d
