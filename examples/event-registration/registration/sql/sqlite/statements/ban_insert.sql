-- Bans a user: all columns.
-- The event's lock and ban_delete come first, so there is none yet.
INSERT INTO registration_ban (event_id, user_id, reason, banned_by, created_at, expires_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6);
