-- Counts who is on the waitlist up to a number: event, number.
-- That is the place of whoever has the number.
SELECT COUNT(*)
FROM registration
WHERE event_id = @p1 AND status = 'waitlisted' AND number <= @p2;
