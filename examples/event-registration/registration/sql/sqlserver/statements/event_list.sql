-- Lists events in order of their ids, for pages and reconciliation: after, limit.
-- It locks nothing.
SELECT TOP (@p2) event_id, version, title, organizer_id, status, capacity, waitlist_limit, active_count, waitlist_count, last_number, revision, DATEDIFF_BIG(MILLISECOND, '1970-01-01', SYSUTCDATETIME())
FROM registration_event
WHERE event_id > @p1
ORDER BY event_id;
