-- Lists a user's registrations, the latest first: user, status or nothing for all, before (time, event), limit.
-- The event breaks ties, so that a page begins where the last one ended.
SELECT event_id, user_id, status, number, created_at, updated_at, offer_until
FROM registration
WHERE user_id = ?1 AND (?2 = '' OR status = ?2)
  AND (created_at < ?3 OR (created_at = ?3 AND event_id < ?4))
ORDER BY created_at DESC, event_id DESC
LIMIT ?5;
