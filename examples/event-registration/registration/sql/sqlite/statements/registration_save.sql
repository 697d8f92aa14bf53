-- Writes a registration: all columns.
-- The event's lock covers it.
UPDATE registration
SET status = ?3, number = ?4, created_at = ?5, updated_at = ?6, offer_until = ?7
WHERE event_id = ?1 AND user_id = ?2;
