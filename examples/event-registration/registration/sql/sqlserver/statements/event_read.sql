-- Reads an event and keeps no lock, with the database's time: event.
-- What it says may be old by the time it is used: writers use event_lock.
SELECT event_id, version, title, organizer_id, status, capacity, waitlist_limit, active_count, waitlist_count, last_number, revision, DATEDIFF_BIG(MILLISECOND, '1970-01-01', SYSUTCDATETIME())
FROM registration_event
WHERE event_id = @p1;
