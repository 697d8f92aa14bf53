-- Lifts a ban: event, user.
-- A new ban also begins here, so that it replaces the old one.
DELETE FROM registration_ban
WHERE event_id = @p1 AND user_id = @p2;
