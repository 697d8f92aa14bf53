-- Returns the position of an event in the log, 0 if it has none yet and -1 if there is no such event, and how far a consumer group
-- has read that, -1 if there is no such group: the group of the whole log (topic '') or of the event's topic.
WITH event AS MATERIALIZED (
    SELECT coalesce(l.position, 0) AS position, l.topic
    FROM "main"."outbox_event_stream" AS s INDEXED BY "outbox_event_stream_name"
    CROSS JOIN "main"."outbox_event" AS e ON e.stream_no = s.stream_no AND e.version = ?1 ->> '$.version'
    LEFT JOIN "main"."outbox_log" AS l INDEXED BY "outbox_log_message"
            ON l.message_id = (SELECT o.message_id FROM "main"."outbox" AS o WHERE o.seq = e.seq)
    WHERE s.name = ?1 ->> '$.stream')
SELECT coalesce((SELECT e.position FROM event AS e), -1),
       coalesce((SELECT max(g.position) FROM "main"."outbox_log_group" AS g
                 WHERE g.group_name = ?1 ->> '$.group' AND g.topic IN ((SELECT e.topic FROM event AS e), '')), -1);
