-- Stores a response under its key: user, route, key, status, headers, body.
-- The transaction is that of the effect.
UPDATE registration_key
SET status = @p4, headers = @p5, body = @p6
WHERE user_id = @p1 AND route = @p2 AND request = @p3;
