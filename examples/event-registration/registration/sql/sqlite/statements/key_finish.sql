-- Stores a response under its key: user, route, key, status, headers, body.
-- The transaction is that of the effect.
UPDATE registration_key
SET status = ?4, headers = ?5, body = ?6
WHERE user_id = ?1 AND route = ?2 AND request = ?3;
