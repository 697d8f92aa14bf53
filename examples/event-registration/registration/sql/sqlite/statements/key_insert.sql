-- Takes an idempotency key for a request: user, route, key, hash, milliseconds to live.
-- No row means that the key is known.
INSERT INTO registration_key (user_id, route, request, hash, status, headers, body, expires_at)
VALUES (?1, ?2, ?3, ?4, 0, '', x'', CAST(unixepoch('subsec') * 1000 AS INTEGER) + ?5)
ON CONFLICT (user_id, route, request) DO NOTHING;
