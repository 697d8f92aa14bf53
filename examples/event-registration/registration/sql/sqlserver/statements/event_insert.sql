-- Adds an event that is not known yet, closed and older than any snapshot: event.
-- One that is there stays as it is.
INSERT INTO registration_event (event_id, version, title, organizer_id, status, capacity, waitlist_limit, active_count, waitlist_count, last_number, revision)
SELECT @p1, 0, N'', N'', N'closed', 0, -1, 0, 0, 0, 0
WHERE NOT EXISTS (SELECT 1 FROM registration_event WITH (UPDLOCK, HOLDLOCK) WHERE event_id = @p1);
