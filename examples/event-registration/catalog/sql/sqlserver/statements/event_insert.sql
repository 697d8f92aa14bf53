-- Adds an event, empty and older than any of its versions: event.
-- One that is there stays as it is.
INSERT INTO catalog_event (event_id, version, title, organizer_id, status, capacity, waitlist_limit, active, waiting, revision)
SELECT @p1, 0, N'', N'', N'', 0, 0, 0, 0, 0
WHERE NOT EXISTS (SELECT 1 FROM catalog_event WITH (UPDLOCK, HOLDLOCK) WHERE event_id = @p1);
