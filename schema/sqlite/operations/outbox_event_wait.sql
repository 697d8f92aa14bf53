-- Returns the position of an event in the log, 0 if it has none yet, and how far a consumer group has read that: the group of
-- the whole log (topic '') or of the event's topic.
WITH event AS MATERIALIZED (
    SELECT l.position, l.topic
    FROM "main"."outbox_event_stream" AS s INDEXED BY "outbox_event_stream_name"
    CROSS JOIN "main"."outbox_event" AS e ON e.stream_no = s.stream_no AND e.version = ?1 ->> '$.version'
    CROSS JOIN "main"."outbox_log" AS l INDEXED BY "outbox_log_message"
            ON l.message_id = (SELECT o.message_id FROM "main"."outbox" AS o WHERE o.seq = e.seq)
    WHERE s.name = ?1 ->> '$.stream')
SELECT coalesce((SELECT e.position FROM event AS e), 0),
       coalesce((SELECT max(g.position) FROM "main"."outbox_log_group" AS g
                 WHERE g.group_name = ?1 ->> '$.group' AND g.topic IN ((SELECT e.topic FROM event AS e), '')), 0);
