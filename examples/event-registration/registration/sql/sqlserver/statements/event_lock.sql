-- Locks an event and reads it, with the database's time: event.
-- UPDLOCK: whoever changes an event waits here, and nowhere else, as long as the request lasts; the wait for an idempotency key
-- was short.
SET XACT_ABORT ON;
SET LOCK_TIMEOUT -1;
SELECT event_id, version, title, organizer_id, status, capacity, waitlist_limit, active_count, waitlist_count, last_number, revision, DATEDIFF_BIG(MILLISECOND, '1970-01-01', SYSUTCDATETIME())
FROM registration_event WITH (UPDLOCK, ROWLOCK)
WHERE event_id = @p1;
