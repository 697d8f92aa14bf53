-- Reads a user's registration for an event: event, user.
-- Writers have locked the event first, so it needs no lock of its own.
SELECT event_id, user_id, status, number, created_at, updated_at, offer_until
FROM registration
WHERE event_id = $1 AND user_id = $2;
