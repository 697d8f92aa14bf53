-- Deletes some of the keys that have expired: limit.
-- In batches, so that no request waits for it for long.
DELETE TOP (@p1) FROM registration_key WITH (ROWLOCK, READPAST)
WHERE expires_at <= DATEDIFF_BIG(MILLISECOND, '1970-01-01', SYSUTCDATETIME());
