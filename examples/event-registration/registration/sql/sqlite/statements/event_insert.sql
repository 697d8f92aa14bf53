-- Adds an event that is not known yet, closed and older than any snapshot: event.
-- One that is there stays as it is.
INSERT INTO registration_event (event_id, version, title, organizer_id, status, capacity, waitlist_limit, active_count, waitlist_count, last_number, revision)
VALUES (?1, 0, '', '', 'closed', 0, -1, 0, 0, 0, 0)
ON CONFLICT (event_id) DO NOTHING;
