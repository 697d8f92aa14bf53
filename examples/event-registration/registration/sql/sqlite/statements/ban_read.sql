-- Reads whether a user is banned at a time: event, user, time.
-- A ban that has expired is none.
SELECT COUNT(*)
FROM registration_ban
WHERE event_id = ?1 AND user_id = ?2 AND (expires_at = 0 OR expires_at > ?3);
