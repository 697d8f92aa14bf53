-- Adds an event, empty and older than any of its versions: event.
-- One that is there stays as it is.
INSERT INTO catalog_event (event_id, version, title, organizer_id, status, capacity, waitlist_limit, active, waiting, revision)
VALUES (?1, 0, '', '', '', 0, 0, 0, 0, 0)
ON CONFLICT (event_id) DO NOTHING;
