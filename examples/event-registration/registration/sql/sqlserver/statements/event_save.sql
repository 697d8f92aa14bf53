-- Writes an event that event_lock has locked.
-- Counters and registrations change in one transaction.
UPDATE registration_event
SET version = @p2, title = @p3, organizer_id = @p4, status = @p5, capacity = @p6, waitlist_limit = @p7,
    active_count = @p8, waitlist_count = @p9, last_number = @p10, revision = @p11
WHERE event_id = @p1;
