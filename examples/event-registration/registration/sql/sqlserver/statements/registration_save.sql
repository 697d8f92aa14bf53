-- Writes a registration: all columns.
-- The event's lock covers it.
UPDATE registration
SET status = @p3, number = @p4, created_at = @p5, updated_at = @p6, offer_until = @p7
WHERE event_id = @p1 AND user_id = @p2;
