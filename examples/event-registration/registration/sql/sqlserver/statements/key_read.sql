-- Reads the response stored under a key: user, route, key.
-- It was committed with its effect, so it is whole.
SELECT hash, status, headers, body
FROM registration_key
WHERE user_id = @p1 AND route = @p2 AND request = @p3;
