-- Writes a new version of an event: all but the counters.
-- event_lock has locked it.
UPDATE catalog_event
SET version = ?2, title = ?3, organizer_id = ?4, status = ?5, capacity = ?6, waitlist_limit = ?7
WHERE event_id = ?1;
