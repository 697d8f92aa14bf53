-- Writes an event that event_lock has locked.
-- Counters and registrations change in one transaction.
UPDATE registration_event
SET version = ?2, title = ?3, organizer_id = ?4, status = ?5, capacity = ?6, waitlist_limit = ?7,
    active_count = ?8, waitlist_count = ?9, last_number = ?10, revision = ?11
WHERE event_id = ?1;
