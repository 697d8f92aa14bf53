-- Takes a key whose response has expired: user, route, key, hash, milliseconds to live.
-- Of two that try, the second finds it renewed.
UPDATE registration_key
SET hash = ?4, status = 0, expires_at = CAST(unixepoch('subsec') * 1000 AS INTEGER) + ?5
WHERE user_id = ?1 AND route = ?2 AND request = ?3 AND expires_at <= CAST(unixepoch('subsec') * 1000 AS INTEGER);
