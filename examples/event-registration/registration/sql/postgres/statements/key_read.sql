-- Reads the response stored under a key: user, route, key.
-- It was committed with its effect, so it is whole.
SELECT hash, status, headers, body
FROM registration_key
WHERE user_id = $1 AND route = $2 AND request = $3;
