-- Takes an idempotency key for a request: user, route, key, hash, milliseconds to live. No row means that the key is known.
-- While another replica holds it uncommitted, this waits for a second; event_lock sets the timeout back.
INSERT INTO registration_key (user_id, route, request, hash, status, headers, body, expires_at)
SELECT $1, $2, $3, $4, 0, '', '', CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint) + CAST($5 AS bigint)
FROM set_config('lock_timeout', '1000', true)
ON CONFLICT (user_id, route, request) DO NOTHING;
