-- Lists a user's registrations, the latest first: user, status or nothing for all, before (time, event), limit.
-- The event breaks ties, so that a page begins where the last one ended.
SELECT TOP (@p5) event_id, user_id, status, number, created_at, updated_at, offer_until
FROM registration
WHERE user_id = @p1 AND (@p2 = '' OR status = @p2)
  AND (created_at < @p3 OR (created_at = @p3 AND event_id < @p4))
ORDER BY created_at DESC, event_id DESC;
