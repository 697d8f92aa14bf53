-- Lists the consumer groups of the log, by name, at most limit after a name, with how far behind they are: messages that they have
-- not passed and dead letters, each counted up to counted, and when the first of those messages was logged. A group without
-- a topic reads the whole log.
SELECT g.group_name, g.topic, g.position,
       CASE g.topic WHEN '' THEN
           (SELECT count(*) FROM (SELECT 1 FROM "main"."outbox_log" AS l WHERE l.position > g.position LIMIT (?1 ->> '$.counted')))
       ELSE
           (SELECT count(*) FROM (SELECT 1 FROM "main"."outbox_log" AS l INDEXED BY "outbox_log_topic"
                                  WHERE l.topic = g.topic AND l.position > g.position LIMIT (?1 ->> '$.counted')))
       END,
       CASE g.topic WHEN '' THEN
           (SELECT l.logged_at FROM "main"."outbox_log" AS l WHERE l.position > g.position ORDER BY l.position LIMIT 1)
       ELSE
           (SELECT l.logged_at FROM "main"."outbox_log" AS l INDEXED BY "outbox_log_topic"
            WHERE l.topic = g.topic AND l.position > g.position ORDER BY l.position LIMIT 1)
       END,
       (SELECT count(*) FROM (SELECT 1 FROM "main"."outbox_log_dead" AS d
                              WHERE d.group_name = g.group_name AND (g.topic = '' OR d.topic = g.topic) LIMIT (?1 ->> '$.counted'))),
       g.locked_until, CASE WHEN g.tried > g.position THEN g.attempts ELSE 0 END, CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)
FROM (SELECT g.* FROM "main"."outbox_log_group" AS g
      WHERE (g.group_name, g.topic) > (coalesce(?1 ->> '$.after_group', ''), coalesce(?1 ->> '$.after_topic', ''))
      ORDER BY g.group_name, g.topic
      LIMIT (?1 ->> '$.limit')) AS g;
