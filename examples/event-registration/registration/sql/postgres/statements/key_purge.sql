-- Deletes some of the keys that have expired: limit.
-- In batches, so that no request waits for it for long.
DELETE FROM registration_key
WHERE (user_id, route, request) IN (SELECT user_id, route, request FROM registration_key WHERE expires_at <= CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint) ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED);
