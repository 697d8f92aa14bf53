-- Deletes up to limit events of a stream that is archived, or that were deleted, in order: with their positions, and with
-- their contents unless they are in the queue, too (by a trigger). It stops at the first event that has no position yet, that
-- a consumer group has not passed, or that is a dead letter of one. Returns how many it deleted, and how many of those to
-- delete are left.
UPDATE "main"."outbox_event_stream" INDEXED BY "outbox_event_stream_name"
SET purged = (
    SELECT coalesce((
        SELECT e.version - 1 FROM "main"."outbox_event" AS e
        WHERE e.stream_no = w.stream_no AND e.version > w.purged AND e.version <= w.upto
          AND NOT EXISTS (
              SELECT 1 FROM "main"."outbox_log" AS l INDEXED BY "outbox_log_message"
              WHERE l.message_id = (SELECT o.message_id FROM "main"."outbox" AS o WHERE o.seq = e.seq)
                AND NOT EXISTS (SELECT 1 FROM "main"."outbox_log_group" AS g WHERE g.topic IN (l.topic, '') AND g.position < l.position)
                AND NOT EXISTS (SELECT 1 FROM "main"."outbox_log_dead" AS d INDEXED BY "outbox_log_dead_position" WHERE d.position = l.position))
        ORDER BY e.version
        LIMIT 1), w.upto)
    FROM (SELECT s.stream_no, s.purged, min(CASE WHEN s.archived THEN s.version ELSE s.hidden END, s.purged + (?1 ->> '$.limit')) AS upto
          FROM "main"."outbox_event_stream" AS s INDEXED BY "outbox_event_stream_name" WHERE s.name = ?1 ->> '$.stream') AS w)
WHERE name = ?1 ->> '$.stream';

DELETE FROM "main"."outbox_event"
WHERE stream_no = (SELECT s.stream_no FROM "main"."outbox_event_stream" AS s INDEXED BY "outbox_event_stream_name" WHERE s.name = ?1 ->> '$.stream')
  AND version <= (SELECT s.purged FROM "main"."outbox_event_stream" AS s INDEXED BY "outbox_event_stream_name" WHERE s.name = ?1 ->> '$.stream');

SELECT changes(), CASE WHEN s.archived THEN s.version ELSE s.hidden END - s.purged
FROM "main"."outbox_event_stream" AS s INDEXED BY "outbox_event_stream_name" WHERE s.name = ?1 ->> '$.stream';

UPDATE "main"."outbox_event_stream" INDEXED BY "outbox_event_stream_name" SET hidden = purged WHERE name = ?1 ->> '$.stream' AND hidden < purged;
