-- Takes a key whose response has expired: user, route, key, hash, milliseconds to live.
-- Of two that try, the second finds it renewed.
UPDATE registration_key
SET hash = @p4, status = 0, expires_at = DATEDIFF_BIG(MILLISECOND, '1970-01-01', SYSUTCDATETIME()) + @p5
WHERE user_id = @p1 AND route = @p2 AND request = @p3 AND expires_at <= DATEDIFF_BIG(MILLISECOND, '1970-01-01', SYSUTCDATETIME());
