-- How many messages have a status.
SELECT COUNT(*) FROM {outbox} WHERE {status} = %d
