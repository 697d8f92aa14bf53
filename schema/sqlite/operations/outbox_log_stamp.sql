-- Gives the next positions to up to limit messages, in order of seq, and returns how many of each topic.
SELECT EXISTS (SELECT 1 FROM "main"."outbox_log_pending");

INSERT INTO "main"."outbox_log" (position, topic, message_id, logged_at)
SELECT c.position + row_number() OVER (ORDER BY p.seq), p.topic, p.message_id, CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)
FROM "main"."outbox_log_pending" AS p, "main"."outbox_log_counter" AS c
ORDER BY p.seq
LIMIT (?1 ->> '$.limit');

SELECT n.topic, count(*)
FROM (SELECT l.topic FROM "main"."outbox_log" AS l
      WHERE l.position > (SELECT c.position FROM "main"."outbox_log_counter" AS c)
      ORDER BY l.position
      LIMIT (?1 ->> '$.limit')) AS n
GROUP BY n.topic;

DELETE FROM "main"."outbox_log_pending"
WHERE seq IN (SELECT p.seq FROM "main"."outbox_log_pending" AS p ORDER BY p.seq LIMIT (?1 ->> '$.limit'));

UPDATE "main"."outbox_log_counter" SET position = coalesce((SELECT max(l.position) FROM "main"."outbox_log" AS l), position);
