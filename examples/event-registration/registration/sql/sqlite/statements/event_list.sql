-- Lists events in order of their ids, for pages and reconciliation: after, limit.
-- It locks nothing.
SELECT event_id, version, title, organizer_id, status, capacity, waitlist_limit, active_count, waitlist_count, last_number, revision, CAST(unixepoch('subsec') * 1000 AS INTEGER)
FROM registration_event
WHERE event_id > ?1
ORDER BY event_id
LIMIT ?2;
