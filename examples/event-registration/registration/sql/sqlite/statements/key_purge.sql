-- Deletes some of the keys that have expired: limit.
-- In batches, so that no request waits for it for long.
DELETE FROM registration_key
WHERE rowid IN (SELECT rowid FROM registration_key WHERE expires_at <= CAST(unixepoch('subsec') * 1000 AS INTEGER) ORDER BY expires_at LIMIT ?1);
