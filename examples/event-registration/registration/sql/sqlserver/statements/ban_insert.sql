-- Bans a user: all columns.
-- The event's lock and ban_delete come first, so there is none yet.
INSERT INTO registration_ban (event_id, user_id, reason, banned_by, created_at, expires_at)
VALUES (@p1, @p2, @p3, @p4, @p5, @p6);
