-- Lists the registrations of an event in one status, in order of their numbers: event, status, after, limit.
-- For the waitlist that is the order of promotion. Nothing is skipped: the event's lock makes that needless.
SELECT event_id, user_id, status, number, created_at, updated_at, offer_until
FROM registration
WHERE event_id = $1 AND status = $2 AND number > $3
ORDER BY number
LIMIT $4;
