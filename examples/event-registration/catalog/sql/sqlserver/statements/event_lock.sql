-- Locks an event and reads it: event.
-- Versions are given out under the lock, so they are in the order of commits.
SELECT event_id, version, title, organizer_id, status, capacity, waitlist_limit, active, waiting, revision
FROM catalog_event WITH (UPDLOCK, ROWLOCK)
WHERE event_id = @p1;
