-- Takes an idempotency key for a request: user, route, key, hash, milliseconds to live. No row means that the key is known.
-- While another replica holds it uncommitted, this waits for a second: error 1222.
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 1000;
INSERT INTO registration_key (user_id, route, request, hash, status, headers, body, expires_at)
SELECT @p1, @p2, @p3, @p4, 0, N'', 0x, DATEDIFF_BIG(MILLISECOND, '1970-01-01', SYSUTCDATETIME()) + @p5
WHERE NOT EXISTS (SELECT 1 FROM registration_key WITH (UPDLOCK, HOLDLOCK) WHERE user_id = @p1 AND route = @p2 AND request = @p3);
SET LOCK_TIMEOUT -1;
