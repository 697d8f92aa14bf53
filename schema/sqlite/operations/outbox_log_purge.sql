-- Deletes up to limit positions that are older than the given age and that every consumer group of their topic, and every
-- one of the whole log (its topic is ''), has passed, and the messages that have no state: those for the log alone; answers how many.
-- What a group has given up stays for as long as it is among the group's dead letters.
-- There is no index by age: the first call of a round walks to the first young position and looks at none behind it. Each
-- call returns that position as until and the last one it deleted as after; pass both to the next call.
SELECT 0, coalesce(?1 ->> '$.until', (
    SELECT y.position FROM "main"."outbox_log" AS y
    WHERE y.position > coalesce(?1 ->> '$.after', 0)
      AND y.logged_at > CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) - (?1 ->> '$.older_than_ms')
    ORDER BY y.position LIMIT 1), 9223372036854775807), 0;

DELETE FROM "main"."outbox" INDEXED BY "outbox_message_id"
WHERE NOT EXISTS (SELECT 1 FROM "main"."outbox_state" AS s WHERE s.seq = "outbox".seq) AND message_id IN (
    SELECT l.message_id FROM "main"."outbox_log" AS l
    WHERE l.position > coalesce(?1 ->> '$.after', 0)
      AND l.position < coalesce(?1 ->> '$.until', (
          SELECT y.position FROM "main"."outbox_log" AS y
          WHERE y.position > coalesce(?1 ->> '$.after', 0)
            AND y.logged_at > CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) - (?1 ->> '$.older_than_ms')
          ORDER BY y.position LIMIT 1), 9223372036854775807)
      AND l.logged_at <= CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) - (?1 ->> '$.older_than_ms')
      AND NOT EXISTS (SELECT 1 FROM "main"."outbox_log_group" AS g WHERE g.topic IN (l.topic, '') AND g.position < l.position)
      AND NOT EXISTS (SELECT 1 FROM "main"."outbox_log_dead" AS d WHERE d.position = l.position)
    ORDER BY l.position
    LIMIT (?1 ->> '$.limit'));

-- The clock may have gone on: what is old enough only now waits for the next time, with its message.
DELETE FROM "main"."outbox_log"
WHERE position IN (
    SELECT l.position FROM "main"."outbox_log" AS l
    WHERE l.position > coalesce(?1 ->> '$.after', 0)
      AND l.position < coalesce(?1 ->> '$.until', (
          SELECT y.position FROM "main"."outbox_log" AS y
          WHERE y.position > coalesce(?1 ->> '$.after', 0)
            AND y.logged_at > CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) - (?1 ->> '$.older_than_ms')
          ORDER BY y.position LIMIT 1), 9223372036854775807)
      AND l.logged_at <= CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) - (?1 ->> '$.older_than_ms')
      AND NOT EXISTS (SELECT 1 FROM "main"."outbox_log_group" AS g WHERE g.topic IN (l.topic, '') AND g.position < l.position)
      AND NOT EXISTS (SELECT 1 FROM "main"."outbox_log_dead" AS d WHERE d.position = l.position)
      AND NOT EXISTS (SELECT 1 FROM "main"."outbox" AS o
                      WHERE o.message_id = l.message_id AND NOT EXISTS (SELECT 1 FROM "main"."outbox_state" AS s WHERE s.seq = o.seq))
    ORDER BY l.position
    LIMIT (?1 ->> '$.limit'))
RETURNING 1, 0, position;
