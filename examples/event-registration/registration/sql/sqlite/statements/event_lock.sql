-- Locks an event and reads it, with the database's time: event.
-- BEGIN IMMEDIATE has locked already: there is one writer.
SELECT event_id, version, title, organizer_id, status, capacity, waitlist_limit, active_count, waitlist_count, last_number, revision, CAST(unixepoch('subsec') * 1000 AS INTEGER)
FROM registration_event
WHERE event_id = ?1;
