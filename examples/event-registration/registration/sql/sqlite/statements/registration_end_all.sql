-- Ends every live registration of an event that is canceled: event, time.
-- Whoever is to be told was listed before, under the event's lock.
UPDATE registration
SET status = 'canceled', updated_at = ?2, offer_until = 0
WHERE event_id = ?1 AND status IN ('active', 'waitlisted');
