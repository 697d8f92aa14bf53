-- Deletes up to limit positions that are older than the given age and that every consumer group of their topic, and every
-- group of the whole log (topic ''), has passed, with their messages if they have no state, which are for the log alone.
-- Returns how many. A group's dead letters stay, and so do events: a round begins after those that the log begins with.
-- There is no index by age: the first call of a round walks to the first position that is too young and looks no further.
-- Each call returns that position as until and the last deleted one as after; pass both to the next call.
UPDATE "main"."outbox_event_swept"
SET position = coalesce((
    SELECT l.position - 1 FROM "main"."outbox_log" AS l
    WHERE l.position > min("outbox_event_swept".position, (SELECT c.position FROM "main"."outbox_log_counter" AS c WHERE c.id = 1))
      AND NOT EXISTS (SELECT 1 FROM "main"."outbox" AS o INDEXED BY "outbox_message_id"
                      CROSS JOIN "main"."outbox_event" AS e INDEXED BY "outbox_event_seq" ON e.seq = o.seq
                      WHERE o.message_id = l.message_id)
    ORDER BY l.position LIMIT 1), (SELECT c.position FROM "main"."outbox_log_counter" AS c WHERE c.id = 1))
WHERE id = 1 AND ?1 ->> '$.until' IS NULL;

SELECT 0, coalesce(?1 ->> '$.until', (
    SELECT y.position FROM "main"."outbox_log" AS y
    WHERE y.position > max(coalesce(?1 ->> '$.after', 0), (SELECT w.position FROM "main"."outbox_event_swept" AS w WHERE w.id = 1))
      AND y.logged_at > CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) - (?1 ->> '$.older_than_ms')
    ORDER BY y.position LIMIT 1), 9223372036854775807), 0;

DELETE FROM "main"."outbox" INDEXED BY "outbox_message_id"
WHERE NOT EXISTS (SELECT 1 FROM "main"."outbox_state" AS s WHERE s.seq = "outbox".seq) AND message_id IN (
    SELECT l.message_id FROM "main"."outbox_log" AS l
    WHERE l.position > max(coalesce(?1 ->> '$.after', 0), (SELECT w.position FROM "main"."outbox_event_swept" AS w WHERE w.id = 1))
      AND l.position < coalesce(?1 ->> '$.until', (
          SELECT y.position FROM "main"."outbox_log" AS y
          WHERE y.position > max(coalesce(?1 ->> '$.after', 0), (SELECT w.position FROM "main"."outbox_event_swept" AS w WHERE w.id = 1))
            AND y.logged_at > CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) - (?1 ->> '$.older_than_ms')
          ORDER BY y.position LIMIT 1), 9223372036854775807)
      AND l.logged_at <= CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) - (?1 ->> '$.older_than_ms')
      AND NOT EXISTS (SELECT 1 FROM "main"."outbox_log_group" AS g WHERE g.topic IN (l.topic, '') AND g.position < l.position)
      AND NOT EXISTS (SELECT 1 FROM "main"."outbox_log_dead" AS d WHERE d.position = l.position)
      AND NOT EXISTS (SELECT 1 FROM "main"."outbox" AS o INDEXED BY "outbox_message_id"
                      CROSS JOIN "main"."outbox_event" AS v INDEXED BY "outbox_event_seq" ON v.seq = o.seq
                      WHERE o.message_id = l.message_id)
    ORDER BY l.position
    LIMIT (?1 ->> '$.limit'));

-- Time may have passed: what became old enough only now waits for the next call, with its message.
DELETE FROM "main"."outbox_log"
WHERE position IN (
    SELECT l.position FROM "main"."outbox_log" AS l
    WHERE l.position > max(coalesce(?1 ->> '$.after', 0), (SELECT w.position FROM "main"."outbox_event_swept" AS w WHERE w.id = 1))
      AND l.position < coalesce(?1 ->> '$.until', (
          SELECT y.position FROM "main"."outbox_log" AS y
          WHERE y.position > max(coalesce(?1 ->> '$.after', 0), (SELECT w.position FROM "main"."outbox_event_swept" AS w WHERE w.id = 1))
            AND y.logged_at > CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) - (?1 ->> '$.older_than_ms')
          ORDER BY y.position LIMIT 1), 9223372036854775807)
      AND l.logged_at <= CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) - (?1 ->> '$.older_than_ms')
      AND NOT EXISTS (SELECT 1 FROM "main"."outbox_log_group" AS g WHERE g.topic IN (l.topic, '') AND g.position < l.position)
      AND NOT EXISTS (SELECT 1 FROM "main"."outbox_log_dead" AS d WHERE d.position = l.position)
      AND NOT EXISTS (SELECT 1 FROM "main"."outbox" AS o INDEXED BY "outbox_message_id"
                      CROSS JOIN "main"."outbox_event" AS v INDEXED BY "outbox_event_seq" ON v.seq = o.seq
                      WHERE o.message_id = l.message_id)
      AND NOT EXISTS (SELECT 1 FROM "main"."outbox" AS o
                      WHERE o.message_id = l.message_id AND NOT EXISTS (SELECT 1 FROM "main"."outbox_state" AS s WHERE s.seq = o.seq))
    ORDER BY l.position
    LIMIT (?1 ->> '$.limit'))
RETURNING 1, 0, position;
