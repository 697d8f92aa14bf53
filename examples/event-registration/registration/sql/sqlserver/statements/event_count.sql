-- Counts what the counters of an event should say: event.
-- Under event_lock the answer stays true until the commit.
SELECT COALESCE(SUM(CASE WHEN status = 'active' THEN 1 ELSE 0 END), 0), COALESCE(SUM(CASE WHEN status = 'waitlisted' THEN 1 ELSE 0 END), 0)
FROM registration
WHERE event_id = @p1;
