-- Records that a message waits for a join, and returns the state of the join; no row if there is none. While the join is
-- pending, the message is due again after recheck_ms or at its deadline, unless it is woken before: an unclaimed message is
-- put off here, a claimed one by its holder.
INSERT INTO "main"."outbox_join_wait" (join_id, message_id, deadline_at)
SELECT j.join_id, ?1 ->> '$.message', CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) + (?1 ->> '$.timeout_ms')
FROM "main"."outbox_join" AS j
WHERE j.join_id = ?1 ->> '$.id'
ON CONFLICT (join_id, message_id) DO NOTHING;

UPDATE "main"."outbox_state"
SET next_attempt_at = (
    SELECT min(c.again, coalesce(w.deadline_at, c.again))
    FROM "main"."outbox_join_wait" AS w, (SELECT CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) + (?1 ->> '$.recheck_ms') AS again) AS c
    WHERE w.join_id = ?1 ->> '$.id' AND w.message_id = ?1 ->> '$.message')
WHERE NOT (?1 ->> '$.claimed') AND status = 0
  AND seq = (SELECT o.seq FROM "main"."outbox" AS o WHERE o.message_id = ?1 ->> '$.message')
  AND EXISTS (SELECT 1 FROM "main"."outbox_join" AS j WHERE j.join_id = ?1 ->> '$.id' AND j.status = 0);

SELECT j.status, j.expected_steps, j.completed_steps, j.failed_steps, j.fail_fast OR j.quorum IS NOT NULL,
       coalesce(w.deadline_at <= c.moment, 0),
       max(1, min(?1 ->> '$.recheck_ms', coalesce(w.deadline_at - c.moment, ?1 ->> '$.recheck_ms')))
FROM "main"."outbox_join" AS j INNER JOIN "main"."outbox_join_wait" AS w ON w.join_id = j.join_id,
     (SELECT CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) AS moment) AS c
WHERE j.join_id = ?1 ->> '$.id' AND w.message_id = ?1 ->> '$.message';
