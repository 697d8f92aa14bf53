-- Writes a new version of an event: all but the counters.
-- event_lock has locked it.
UPDATE catalog_event
SET version = @p2, title = @p3, organizer_id = @p4, status = @p5, capacity = @p6, waitlist_limit = @p7
WHERE event_id = @p1;
