-- Looks at up to limit positions, and deletes those that are older than the given age and that every consumer group of their
-- topic, and every group of the whole log (topic ''), has passed, with their messages if they have no state, which are for
-- the log alone. A group's dead letters stay, and so do events: a round begins after those that the log begins with, of
-- which it passes at most a hundred times limit that it has not passed before, and ends at the first position that is too
-- young. Returns how many were deleted, and where to continue: the after of the next call, or 0 at the end.
WITH range AS MATERIALIZED (
    SELECT min(w.position, c.position) AS swept, min(c.position, w.position + 100 * (?1 ->> '$.limit')) AS highest
    FROM "main"."outbox_event_swept" AS w, "main"."outbox_log_counter" AS c WHERE w.id = 1 AND c.id = 1)
UPDATE "main"."outbox_event_swept"
SET position = coalesce((
    SELECT l.position - 1 FROM range AS r CROSS JOIN "main"."outbox_log" AS l ON l.position > r.swept AND l.position <= r.highest
    WHERE NOT EXISTS (SELECT 1 FROM "main"."outbox" AS o INDEXED BY "outbox_message_id"
                      CROSS JOIN "main"."outbox_event" AS e INDEXED BY "outbox_event_seq" ON e.seq = o.seq
                      WHERE o.message_id = l.message_id)
    ORDER BY l.position LIMIT 1), (SELECT r.highest FROM range AS r))
WHERE id = 1 AND coalesce(?1 ->> '$.after', 0) = 0;

WITH start AS MATERIALIZED (
    SELECT max(coalesce(?1 ->> '$.after', 0), (SELECT w.position FROM "main"."outbox_event_swept" AS w WHERE w.id = 1)) AS position,
           CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) - (?1 ->> '$.older_than_ms') AS before),
looked AS MATERIALIZED (
    SELECT l.position, l.message_id, l.topic, l.logged_at <= s.before AS old
    FROM start AS s CROSS JOIN "main"."outbox_log" AS l ON l.position > s.position
    WHERE s.before >= (SELECT f.logged_at FROM "main"."outbox_log" AS f WHERE f.position > s.position ORDER BY f.position LIMIT 1)
    ORDER BY l.position
    LIMIT (?1 ->> '$.limit'))
SELECT 0, CASE WHEN count(*) = ?1 ->> '$.limit' AND min(l.old) THEN max(l.position) ELSE 0 END FROM looked AS l;

WITH start AS MATERIALIZED (
    SELECT max(coalesce(?1 ->> '$.after', 0), (SELECT w.position FROM "main"."outbox_event_swept" AS w WHERE w.id = 1)) AS position,
           CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) - (?1 ->> '$.older_than_ms') AS before),
looked AS MATERIALIZED (
    SELECT l.position, l.message_id, l.topic, l.logged_at <= s.before AS old
    FROM start AS s CROSS JOIN "main"."outbox_log" AS l ON l.position > s.position
    WHERE s.before >= (SELECT f.logged_at FROM "main"."outbox_log" AS f WHERE f.position > s.position ORDER BY f.position LIMIT 1)
    ORDER BY l.position
    LIMIT (?1 ->> '$.limit')),
chosen AS MATERIALIZED (
    SELECT l.position, l.message_id
    FROM looked AS l
    WHERE l.position < coalesce((SELECT min(y.position) FROM looked AS y WHERE NOT y.old), 9223372036854775807)
      AND NOT EXISTS (SELECT 1 FROM "main"."outbox_log_group" AS g WHERE g.topic IN (l.topic, '') AND g.position < l.position)
      AND NOT EXISTS (SELECT 1 FROM "main"."outbox_log_dead" AS d WHERE d.position = l.position)
      AND NOT EXISTS (SELECT 1 FROM "main"."outbox" AS o INDEXED BY "outbox_message_id"
                      CROSS JOIN "main"."outbox_event" AS v INDEXED BY "outbox_event_seq" ON v.seq = o.seq
                      WHERE o.message_id = l.message_id))
DELETE FROM "main"."outbox" INDEXED BY "outbox_message_id"
WHERE NOT EXISTS (SELECT 1 FROM "main"."outbox_state" AS s WHERE s.seq = "outbox".seq) AND message_id IN (SELECT c.message_id FROM chosen AS c);

-- Time may have passed: what became old enough only now waits for the next call, with its message.
WITH start AS MATERIALIZED (
    SELECT max(coalesce(?1 ->> '$.after', 0), (SELECT w.position FROM "main"."outbox_event_swept" AS w WHERE w.id = 1)) AS position,
           CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) - (?1 ->> '$.older_than_ms') AS before),
looked AS MATERIALIZED (
    SELECT l.position, l.message_id, l.topic, l.logged_at <= s.before AS old
    FROM start AS s CROSS JOIN "main"."outbox_log" AS l ON l.position > s.position
    WHERE s.before >= (SELECT f.logged_at FROM "main"."outbox_log" AS f WHERE f.position > s.position ORDER BY f.position LIMIT 1)
    ORDER BY l.position
    LIMIT (?1 ->> '$.limit')),
chosen AS MATERIALIZED (
    SELECT l.position, l.message_id
    FROM looked AS l
    WHERE l.position < coalesce((SELECT min(y.position) FROM looked AS y WHERE NOT y.old), 9223372036854775807)
      AND NOT EXISTS (SELECT 1 FROM "main"."outbox_log_group" AS g WHERE g.topic IN (l.topic, '') AND g.position < l.position)
      AND NOT EXISTS (SELECT 1 FROM "main"."outbox_log_dead" AS d WHERE d.position = l.position)
      AND NOT EXISTS (SELECT 1 FROM "main"."outbox" AS o INDEXED BY "outbox_message_id"
                      CROSS JOIN "main"."outbox_event" AS v INDEXED BY "outbox_event_seq" ON v.seq = o.seq
                      WHERE o.message_id = l.message_id)
      AND NOT EXISTS (SELECT 1 FROM "main"."outbox" AS o
                      WHERE o.message_id = l.message_id AND NOT EXISTS (SELECT 1 FROM "main"."outbox_state" AS s WHERE s.seq = o.seq)))
DELETE FROM "main"."outbox_log" WHERE position IN (SELECT c.position FROM chosen AS c)
RETURNING 1, 0;
