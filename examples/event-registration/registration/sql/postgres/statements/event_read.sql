-- Reads an event without waiting for its writers, with the database's time: event.
-- What it says may be old by the time it is used: writers use event_lock.
SELECT event_id, version, title, organizer_id, status, capacity, waitlist_limit, active_count, waitlist_count, last_number, revision, CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)
FROM registration_event
WHERE event_id = $1;
